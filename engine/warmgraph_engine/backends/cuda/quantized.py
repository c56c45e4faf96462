"""Projections that are quantized on their way to the arena, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda.convert import STORAGE, STORED_DTYPES, to_dtype
from warmgraph_engine.backends.cuda.memory import Addresses
from warmgraph_engine.checkpoint.safetensors_file import StoredTensor
from warmgraph_engine.models import fp8
from warmgraph_engine.models.weights import WeightSpec

PIECE_NUMBERS = 2 << 20
"""Of a thread's turn: enough that handing out turns costs nothing, few enough that a large matrix
is worked by all threads."""

BLOCK_NUMBERS = 64 << 10
"""Converted at a time: in float32 they fit a core's L2 cache."""


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
        shape = self.stored.shape[::-1] if self.transposed else self.stored.shape
        codes = np.empty((self.rows, shape[1]), np.uint8)
        scales = np.empty(self.rows, np.float32)
        step = max(1, BLOCK_NUMBERS // shape[1])
        for done in range(0, self.rows, step):
            block = slice(done, min(done + step, self.rows))
            values = self._values(self.first + block.start, self.first + block.stop)
            codes[block], scales[block] = fp8.quantize_rows(values)
        yield self.address, codes.reshape(-1)
        yield self.scale_address, scales.view(np.uint8)

    def _values(self, begin: int, end: int) -> NDArray[np.float32]:
        dtype = STORED_DTYPES[self.stored.dtype]
        matrix: NDArray[Any] = np.frombuffer(self.stored.data, STORAGE[dtype])
        matrix = matrix.reshape(self.stored.shape)
        rows = np.ascontiguousarray(
            matrix[:, begin:end].T if self.transposed else matrix[begin:end]
        )
        return to_dtype(rows.reshape(-1).data, dtype, "float32").reshape(rows.shape)


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
