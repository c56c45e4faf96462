"""Fixtures that more than one subject needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _fetch(variant: str) -> Path:
    command = [sys.executable, str(ROOT / "demo" / "fetch_model.py"), "--variant", variant]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct, fetched and converted once into the user's cache."""
    return _fetch("v1")


@pytest.fixture(scope="session")
def smollm2_v2() -> Path:
    """The second version: other weights in the last layer, another default system prompt."""
    return _fetch("v2")
