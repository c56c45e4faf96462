"""A pod that is deleted while its processes still import ends at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = """
import sys, time

class Slow:
    def find_spec(self, name, path, target=None):
        if name == {library!r}:
            print("importing", flush=True)
            for _ in range(6000):  # imports are many short things, between which signals count
                time.sleep(0.01)

sys.meta_path.insert(0, Slow())
from {module} import main
main()
"""


@pytest.mark.parametrize(
    ("module", "library", "arguments"),
    [
        ("warmgraph_sidecar.__main__", "aiohttp", []),
        ("warmgraph_operator.__main__", "aiohttp", []),
        ("warmgraph_activator.__main__", "aiohttp", []),
        ("warmgraph_engine.__main__", "numpy", ["--model=/models/m"]),
        ("warmgraph_engine.__main__", "aiohttp", ["--model=/models/m"]),
    ],
)
def test_sigterm_ends_a_process_that_still_imports(
    module: str, library: str, arguments: list[str]
) -> None:
    code = SLOW.format(module=module, library=library)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"importing\n"
    process.terminate()
    # Not -15, which is what a signal does that nobody handles: nothing, to a container's first.
    assert process.wait(10) == 128 + 15
    process.stdout.close()
