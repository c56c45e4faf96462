"""Weights from a checkpoint into the arena, converted to the engine's type on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from warmgraph_engine.backends.cpu.memory import CpuArena
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.checkpoint.safetensors_file import StoredTensor
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.models.weights import WeightSpec

_STORED_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def load_weights(
    arena: CpuArena,
    checkpoint: Checkpoint,
    specs: Sequence[WeightSpec],
    *,
    rank: int = 0,
    ranks: int = 1,
    progress: Callable[[], None],
) -> None:
    """Fill the regions `weights.NAME` with the rank's part of the model; `progress` is called after
    each. Raises ModelError."""
    for spec in specs:
        target = arena.tensor(f"weights.{spec.name}")
        row = 0
        for part in spec.parts:
            stored = _tensor(checkpoint.tensor(part).share(spec.shared_axis, rank, ranks))
            source = stored.t() if spec.transposed else stored
            rows = target[row : row + len(source)]
            if rows.shape != source.shape:
                raise ModelError(
                    f"tensor {part} is {tuple(stored.shape)}, which does not fit config.json"
                )
            rows.copy_(source)
            row += len(source)
        if row != len(target):
            raise ModelError(f"tensors {', '.join(spec.parts)} have {row} rows, not {len(target)}")
        progress()


def _tensor(stored: StoredTensor) -> torch.Tensor:
    dtype = _STORED_DTYPES.get(stored.dtype)
    if dtype is None:
        raise ModelError(f"tensor {stored.name} has type {stored.dtype}, which is not a weight's")
    whole = torch.frombuffer(stored.data, dtype=dtype).view(stored.shape)
    return whole if stored.columns is None else whole[:, stored.columns]
