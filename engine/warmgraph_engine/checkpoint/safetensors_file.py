"""Memory-mapped safetensors files: raw bytes of each tensor, ready to be copied into an arena.

The safetensors library would hand out framework tensors, and its numpy flavour has no bfloat16;
the arena wants bytes. Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from warmgraph_engine.models.config import ModelError

ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}

MAX_HEADER_BYTES = 100_000_000
"""The limit of the format's own implementation; a larger length is a damaged file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    name: str
    dtype: str
    """As in the header: F32, F16, BF16, …"""
    shape: tuple[int, ...]
    data: memoryview
    """Mapped: a page is read from disk when it is first touched."""
    path: Path
    offset: int
    """Of the data, in bytes from the file's start, for those who rather read than map."""
    columns: slice | None = None
    """Only these of the last dimension are meant; shape, data and offset are still of all."""

    @property
    def share_shape(self) -> tuple[int, ...]:
        """Without the columns that are not meant."""
        if self.columns is None:
            return self.shape
        return (*self.shape[:-1], self.columns.stop - self.columns.start)

    def share(self, axis: int | None, rank: int, ranks: int) -> StoredTensor:
        """The rank's share of a dimension, 0 or the last of two. None shares nothing."""
        if axis is None or ranks == 1:
            return self
        each = self.shape[axis] // ranks
        if axis:
            return replace(self, columns=slice(rank * each, (rank + 1) * each))
        size = len(self.data) // self.shape[0] * each
        return replace(
            self,
            shape=(each, *self.shape[1:]),
            data=self.data[rank * size : (rank + 1) * size],
            offset=self.offset + rank * size,
        )


class SafetensorsFile:
    """One file, checked against its own header. Raises ModelError if it is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                # Private rather than read-only: torch wants writable memory, and nobody writes.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: cannot be read: {error}") from error
        length = int.from_bytes(self._map[:8], "little")
        if len(self._map) < 8 or length > min(MAX_HEADER_BYTES, len(self._map) - 8):
            raise ModelError(f"{path}: is truncated or not a safetensors file")
        self.header = self._map[8 : 8 + length]
        try:
            entries = json.loads(self.header)
        except ValueError as error:
            raise ModelError(f"{path}: its header is damaged") from error
        entries.pop("__metadata__", None)
        self.size = len(self._map)
        self._data_offset = 8 + length
        self.tensors = {name: self._tensor(name, entry) for name, entry in entries.items()}

    def samples(self, length: int, stride: int) -> memoryview:
        """The first `length` bytes of every `stride` bytes of the file, one behind the other."""
        content = np.frombuffer(self._map, np.uint8)
        whole = self.size // stride * stride
        # One call, which lets other threads run: a large model has thousands of samples.
        samples = content[:whole].reshape(-1, stride)[:, :length]
        return np.concatenate([samples.ravel(), content[whole : whole + length]]).data

    def _tensor(self, name: str, entry: dict[str, object]) -> StoredTensor:
        dtype, shape = str(entry.get("dtype")), entry.get("shape")
        offsets = entry.get("data_offsets")
        if dtype not in ITEM_BYTES or not isinstance(shape, list) or not isinstance(offsets, list):
            raise ModelError(f"{self.path}: tensor {name} has type {dtype}, which is not supported")
        begin, end = (self._data_offset + offset for offset in offsets)
        fits = self._data_offset <= begin <= end <= self.size
        if not fits or end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
            raise ModelError(f"{self.path}: tensor {name} does not fit the file: truncated copy?")
        return StoredTensor(
            name=name,
            dtype=dtype,
            shape=tuple(shape),
            data=memoryview(self._map)[begin:end],
            path=self.path,
            offset=begin,
        )
