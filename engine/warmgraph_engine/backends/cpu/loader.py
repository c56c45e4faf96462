"""Weights from a checkpoint into the arena, converted to the engine's type on the way.

Quantized projections are widened again: a CPU gains nothing from them, but it computes with the
numbers that a GPU computes with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from warmgraph_engine.backends.cpu.memory import CpuArena
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.checkpoint.safetensors_file import StoredTensor
from warmgraph_engine.models import fp8
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.models.weights import WeightSpec

_FP8_NUMBERS = 1 << 20

_STORED_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def load_weights(
    arena: CpuArena,
    checkpoint: Checkpoint,
    specs: Sequence[WeightSpec],
    *,
    quantizes: Callable[[WeightSpec], bool],
    rank: int = 0,
    ranks: int = 1,
    progress: Callable[[], None],
) -> None:
    """Fill the regions `weights.NAME` with the rank's part of the model; those that `quantizes`
    says, with numbers that fp8 can hold.

    `progress` is called after each. Raises ModelError.
    """
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
            if quantizes(spec):
                _copy_through_fp8(source, rows)
            else:
                rows.copy_(source)
            row += len(source)
        if row != len(target):
            raise ModelError(f"tensors {', '.join(spec.parts)} have {row} rows, not {len(target)}")
        progress()


def _copy_through_fp8(source: torch.Tensor, target: torch.Tensor) -> None:
    """Some rows at a time: on the way a number takes some 20 bytes."""
    step = max(1, _FP8_NUMBERS // source.shape[1])
    for first in range(0, len(source), step):
        values = source[first : first + step].to(torch.float32).contiguous().numpy()
        numbers = fp8.dequantize_rows(*fp8.quantize_rows(values))
        target[first : first + step].copy_(torch.from_numpy(numbers))


def _tensor(stored: StoredTensor) -> torch.Tensor:
    dtype = _STORED_DTYPES.get(stored.dtype)
    if dtype is None:
        raise ModelError(f"tensor {stored.name} has type {stored.dtype}, which is not a weight's")
    whole = torch.frombuffer(stored.data, dtype=dtype).view(stored.shape)
    return whole if stored.columns is None else whole[:, stored.columns]
