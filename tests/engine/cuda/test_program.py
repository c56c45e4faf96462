"""What the CUDA backend runs is right, seen without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_the_kernels_give_the_logits_of_the_cpu() -> None:
    """Every case of program_cases.py, interpreted: some hundred small programs in Python."""
    cases = Path(__file__).with_name("program_cases.py")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
