"""Other processes that work on a cache folder, as other engines on its volume do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(source: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python program that may import what tests may; its output is piped."""
    return _run("-c", source, *arguments)


def run_module(name: str, *arguments: object) -> subprocess.Popen[str]:
    """The same with a module that is a program."""
    return _run("-m", name, *arguments)


def _run(*arguments: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
    )
