"""Projections that are quantized on their way to the arena, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda.convert import STORAGE, STORED_DTYPES
from warmgraph_engine.backends.cuda.memory import Addresses
from warmgraph_engine.checkpoint.safetensors_file import StoredTensor
from warmgraph_engine.models import fp8
from warmgraph_engine.models.weights import WeightSpec

PIECE_NUMBERS = 2 << 20
"""Of a thread's turn: few enough that all threads work on a large matrix, and so many that numpy
seldom asks for the interpreter, for which the threads wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """Some rows of a tensor, the first in the arena at `address`, their scales at
    `scale_address`."""

    stored: StoredTensor
    transposed: bool
    first: int
    rows: int
    address: int
    scale_address: int

    def contents(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """(address, bytes that belong there): of the numbers, then of the scales."""
        dtype = STORED_DTYPES[self.stored.dtype]
        matrix: NDArray[Any] = np.frombuffer(self.stored.data, STORAGE[dtype])
        matrix = matrix.reshape(self.stored.shape)
        rows = slice(self.first, self.first + self.rows)
        values = matrix[:, rows].T if self.transposed else matrix[rows]
        if dtype == "bfloat16":
            codes, scales = fp8.quantize_bfloat16_rows(values)
        else:
            codes, scales = fp8.quantize_rows(values.astype(np.float32))
        yield self.address, codes.reshape(-1)
        yield self.scale_address, scales.view(np.uint8)


def quantized_pieces(
    stored: StoredTensor, spec: WeightSpec, addresses: Addresses, *, first_row: int
) -> Iterator[Quantized]:
    """The work for one of a projection's tensors, which fills its rows from `first_row` on."""
    columns, rows = spec.shape[1], stored.shape[1 if spec.transposed else 0]
    step = max(1, PIECE_NUMBERS // columns)
    for first in range(0, rows, step):
        row = first_row + first
        yield Quantized(
            stored=stored,
            transposed=spec.transposed,
            first=first,
            rows=min(step, rows - first),
            address=addresses[f"weights.{spec.name}"] + row * columns,
            scale_address=addresses[f"weights.{spec.scale_name}"] + row * np.float32().nbytes,
        )
