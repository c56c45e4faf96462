"""What the CUDA backend runs is right, seen without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

LONGEST_SECONDS = 900


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[str]]]:
    """By name, what the cases of each file that was asked for print if they fail. As many files
    run side by side as there are cores: together they take a fifth of all tests' time."""
    mine = [item for item in request.session.items if item.path == request.path]
    names = [
        str(item.callspec.params["name"]) for item in mine if isinstance(item, pytest.Function)
    ]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield {name: pool.submit(failures, name) for name in names}
        pool.shutdown(cancel_futures=True)


def failures(name: str) -> str:
    """Of every case of a file: some hundred small programs in Python. Empty if there are none."""
    cases = Path(__file__).with_name(f"{name}_cases.py")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    return "" if result.returncode == 0 else result.stdout + result.stderr


@pytest.mark.timeout(LONGEST_SECONDS + 60)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("program", id="the kernels give the logits of the CPU"),
        pytest.param("draw", id="they draw the tokens of the CPU's sampler"),
        pytest.param("bucket", id="graphs give the bits of eager execution at every fill"),
        pytest.param("serving", id="requests get what they get alone"),
        pytest.param("backend", id="requests get from the backend what they get from the CPU"),
        pytest.param("tampering", id="a changed entry costs no answer"),
        pytest.param("speculative", id="the benchmark of drafts has right ones and wrong ones"),
        pytest.param("reduce", id="the sum over two ranks is right, and bounded"),
        pytest.param("ranks", id="requests get from two ranks what they get from the CPU"),
    ],
)
def test_interpreted(running: Mapping[str, Future[str]], name: str) -> None:
    if found := running[name].result():
        pytest.fail(found, pytrace=False)
