"""Fixtures of the warmup's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.checkpoints import write_checkpoint
from tests.engine.warmup.starts import EVERY_KIND, Start


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "model")


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Callable[..., Start]:
    """Starts with the same model and cache."""
    return lambda **settings: Start(model, tmp_path / "cache", **{**EVERY_KIND, **settings})
