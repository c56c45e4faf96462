"""What a machine without a GPU is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.checkpoints import SETTINGS, write_checkpoint
from warmgraph_engine.backends.cuda import context
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.models.config import ModelError


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from warmgraph_engine.backends.cuda import backend

    def fail(_ordinal: int) -> None:
        raise RuntimeError("no driver here")

    monkeypatch.setattr(backend, "Device", fail)


@pytest.mark.usefixtures("without_gpu")
def test_no_usable_gpu_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    checkpoint = Checkpoint(write_checkpoint(tmp_path, head_dim=16))
    with pytest.raises(ModelError, match="no usable GPU: no driver here"):
        CudaBackend(checkpoint, SETTINGS)


def test_a_head_that_the_kernels_cannot_work_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(write_checkpoint(tmp_path))  # heads of dimension 8
    with pytest.raises(ModelError, match="heads of dimension 8"):
        CudaBackend(checkpoint, SETTINGS)


def test_a_context_made_early_leaves_errors_to_whoever_opens_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context, "LIBRARY", "libno-such-driver.so.1")
    context.create_context()
