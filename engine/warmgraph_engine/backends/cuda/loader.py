"""Weights from a checkpoint into the arena: read into pinned memory, copied by the GPU.

Threads read the file while the bus copies what they have read. Pinning memory takes time, so the
buffers are small. On an H200 machine with the files in the page cache, 2.2 GB arrive at 17 GB/s
and 16 GB at 35 GB/s (benchmarks/weight_loading.py); copying out of a mapping of the file reaches
8 GB/s.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda.convert import STORED_DTYPES, to_dtype
from warmgraph_engine.backends.cuda.driver import Device, check
from warmgraph_engine.backends.cuda.memory import Addresses, PinnedMemory
from warmgraph_engine.backends.cuda.quantized import Quantized, quantized_pieces
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.checkpoint.safetensors_file import StoredTensor
from warmgraph_engine.models import fp8
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.models.weights import WeightSpec

THREADS = 8
CHUNK_BYTES = 8 << 20
BUFFERS = 2
"""For each thread: one is filled while the other is copied."""

PROGRESS_SECONDS = 0.1
"""Between two looks at how far the loading is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a file that goes to the arena as it is."""

    path: Path
    offset: int
    address: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A tensor that goes to the arena in another type or order."""

    stored: StoredTensor
    address: int
    dtype: str
    transposed: bool

    def contents(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """(address, bytes that belong there)."""
        stored = self.stored
        values: NDArray[Any] = to_dtype(stored.data, STORED_DTYPES[stored.dtype], self.dtype)
        values = values.reshape(stored.shape)
        if stored.columns is not None:
            values = values[:, stored.columns]
        if self.transposed:
            values = values.T
        yield self.address, np.ascontiguousarray(values).reshape(-1).view(np.uint8)


Piece = Chunk | Converted | Quantized


def plan(
    checkpoint: Checkpoint,
    specs: Sequence[WeightSpec],
    addresses: Addresses,
    dtype: str,
    *,
    rank: int = 0,
    ranks: int = 1,
) -> list[Piece]:
    """What has to be copied where, for the rank's part of the model. Raises ModelError if the
    checkpoint does not fit the model."""

    def parts(spec: WeightSpec) -> list[StoredTensor]:
        return [checkpoint.tensor(p).share(spec.shared_axis, rank, ranks) for p in spec.parts]

    return [piece for spec in specs for piece in _plan_weight(spec, parts(spec), addresses, dtype)]


def _plan_weight(
    spec: WeightSpec, parts: Sequence[StoredTensor], addresses: Addresses, dtype: str
) -> Iterator[Piece]:
    region = addresses.regions[f"weights.{spec.name}"]
    address = addresses[region.name]
    rows = 0
    for stored in parts:
        part = stored.name
        if stored.dtype not in STORED_DTYPES:
            raise ModelError(f"tensor {part} has type {stored.dtype}, which is not a weight's")
        shape = stored.share_shape[::-1] if spec.transposed else stored.share_shape
        if len(shape) != len(spec.shape) or shape[1:] != spec.shape[1:]:
            raise ModelError(f"tensor {part} is {stored.shape}, which does not fit config.json")
        offset, size = region.part(rows, shape[0])
        rows += shape[0]
        whole = stored.columns is None and not spec.transposed
        if region.dtype == fp8.DTYPE:
            yield from quantized_pieces(stored, spec, addresses, first_row=rows - shape[0])
        elif STORED_DTYPES[stored.dtype] == dtype and whole:
            for done in range(0, size, CHUNK_BYTES):
                yield Chunk(
                    path=stored.path,
                    offset=stored.offset + done,
                    address=address + offset + done,
                    bytes=min(CHUNK_BYTES, size - done),
                )
        else:
            yield Converted(
                stored=stored, address=address + offset, dtype=dtype, transposed=spec.transposed
            )
    if rows != spec.shape[0]:
        raise ModelError(f"tensors {', '.join(spec.parts)} have {rows} rows, not {spec.shape[0]}")


class WeightLoading:
    """Pieces on their way into the arena, in threads of their own."""

    def __init__(
        self,
        device: Device,
        pieces: Sequence[Piece],
        *,
        progress: Callable[[], None],
    ) -> None:
        """`progress` is called now and then by whoever waits, while the end comes nearer."""
        self._device, self._progress = device, progress
        self._left = deque(pieces)
        self._began = time.monotonic()
        self._ends: list[float] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="load")
        self._threads = [self._pool.submit(self._work) for _ in range(THREADS)]

    def finish(self) -> None:
        """Wait until everything is there. Raises ModelError if a file ends early or cannot be
        read."""
        left = len(self._left)
        while wait(self._threads, PROGRESS_SECONDS).not_done:
            if len(self._left) < left:
                left = len(self._left)
                self._progress()
        self._pool.shutdown()
        for thread in self._threads:
            thread.result()

    @property
    def seconds(self) -> float:
        """That it took, once finish() has returned."""
        return max(self._ends) - self._began

    def _work(self) -> None:
        worker = None
        try:
            worker = _Worker(self._device)
            while True:
                try:
                    piece = self._left.popleft()
                except IndexError:
                    break
                worker.copy(piece)
            worker.finish()
            self._ends.append(time.monotonic())
        except BaseException:
            self._left.clear()  # for the others, too: it is of no use any more
            raise
        finally:
            if worker is not None:
                worker.close()


class _Worker:
    """One thread's stream, pinned buffers and open files."""

    def __init__(self, device: Device) -> None:
        device.use()
        self._stream = check(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
        self._buffers = [PinnedMemory(device, CHUNK_BYTES) for _ in range(BUFFERS)]
        flag = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
        self._copied = [check(cuda.cuEventCreate(flag)) for _ in range(BUFFERS)]
        self._files: dict[Path, int] = {}
        self._turn = 0

    def copy(self, piece: Piece) -> None:
        if isinstance(piece, Chunk):
            buffer = self._free_buffer()
            self._read(piece, buffer.view()[: piece.bytes])
            self._send(buffer, piece.address, piece.bytes)
            return
        for address, content in piece.contents():
            for done in range(0, len(content), CHUNK_BYTES):
                part = content[done : done + CHUNK_BYTES]
                buffer = self._free_buffer()
                buffer.array(part.shape, "uint8")[:] = part
                self._send(buffer, address + done, len(part))

    def finish(self) -> None:
        check(cuda.cuStreamSynchronize(self._stream))

    def close(self) -> None:
        """After an error, too: nothing may be copied out of memory that is gone."""
        cuda.cuStreamSynchronize(self._stream)
        for buffer in self._buffers:
            buffer.free()
        for event in self._copied:
            check(cuda.cuEventDestroy(event))
        check(cuda.cuStreamDestroy(self._stream))
        for file in self._files.values():
            os.close(file)

    def _free_buffer(self) -> PinnedMemory:
        self._turn = (self._turn + 1) % BUFFERS
        check(cuda.cuEventSynchronize(self._copied[self._turn]))
        return self._buffers[self._turn]

    def _send(self, buffer: PinnedMemory, address: int, size: int) -> None:
        check(cuda.cuMemcpyHtoDAsync(address, buffer.address, size, self._stream))
        check(cuda.cuEventRecord(self._copied[self._turn], self._stream))

    def _read(self, chunk: Chunk, target: memoryview) -> None:
        try:
            if chunk.path not in self._files:
                self._files[chunk.path] = os.open(chunk.path, os.O_RDONLY)
            done = 0
            while done < len(target):
                count = os.preadv(self._files[chunk.path], [target[done:]], chunk.offset + done)
                if not count:
                    raise ModelError(f"{chunk.path}: ends before its last tensor")
                done += count
        except OSError as error:
            raise ModelError(f"{chunk.path}: cannot be read: {error.strerror}") from error
