"""What the CUDA backend runs is right, seen without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(900)
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
def test_interpreted(name: str) -> None:
    """Every case of a file: some hundred small programs in Python."""
    cases = Path(__file__).with_name(f"{name}_cases.py")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
