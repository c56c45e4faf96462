"""Interpreted GPUs of two processes: they work by themselves, and share memory as real ones do.

A stream's kernels run on a thread of its own as they are enqueued, since the other rank's kernels
wait for them. Shared memory is a file in memory, so that stores and atomics of one process reach
the other.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from cuda.bindings import driver

from tests.engine.cuda.gpu import InterpretedGpu
from warmgraph_engine.backends.cuda import backend as cuda_backend
from warmgraph_engine.backends.cuda.player import CudaPlayer

_OK = driver.CUresult.CUDA_SUCCESS
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_MAP_FIXED = 0x10


class WorkingGpu(InterpretedGpu):
    """One device of a process."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._queue: deque[Callable[[], None]] = deque()
        self._finished = self._enqueued = 0
        self._failed: BaseException | None = None
        threading.Thread(target=self._work, daemon=True).start()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().install(monkeypatch)
        gpu = self

        class MappedPlayer(CudaPlayer):
            def __init__(self, device: Any, sets: Any, *others: Any, **named: Any) -> None:
                super().__init__(device, sets, *others, **named)
                gpu.map(*sets)

        monkeypatch.setattr(cuda_backend, "CudaPlayer", MappedPlayer)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                action = self._queue.popleft()
            try:
                action()
            except BaseException as error:
                self._failed = error
            with self._changed:
                self._finished += 1
                self._changed.notify_all()

    def _later(self, stream: Any, action: Callable[[], None]) -> tuple[Any]:
        if self._captured is not None:
            self._captured.append(action)
            return (_OK,)
        with self._changed:
            self._queue.append(action)
            self._enqueued += 1
            self._changed.notify_all()
        return (_OK,)

    def _wait(self, count: int) -> tuple[Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._finished >= count)
        if self._failed is not None:
            raise self._failed
        return (_OK,)

    def cuStreamSynchronize(self, _stream: Any) -> tuple[Any]:
        return self._wait(self._enqueued)

    def cuEventRecord(self, event: int, _stream: Any) -> tuple[Any]:
        self._recorded[event] = 0, self._enqueued
        return (_OK,)

    def cuEventSynchronize(self, event: int) -> tuple[Any]:
        return self._wait(self._recorded.get(event, (0, 0))[1])

    def cuEventElapsedTime(self, begin: int, end: int) -> tuple[Any, float]:
        """A millisecond for each thing that was enqueued between."""
        return _OK, float(self._recorded[end][1] - self._recorded[begin][1])

    def cuStreamDestroy(self, stream: Any) -> tuple[Any]:
        self._streams.pop(int(stream))
        return (_OK,)

    # --- memory that processes share -----------------------------------------------------------

    def cuMemGetAllocationGranularity(self, _properties: Any, _kind: Any) -> tuple[Any, int]:
        return _OK, mmap.PAGESIZE

    def cuMemCreate(self, size: int, properties: Any, _flags: int) -> tuple[Any, int]:
        posix = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        assert properties.requestedHandleTypes == posix
        handle = os.memfd_create("gpu")
        os.truncate(handle, size)
        return _OK, handle

    def cuMemAddressReserve(
        self, size: int, _alignment: int, _address: int, _flags: int
    ) -> tuple[Any, int]:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        return _OK, self._mapped(0, size, 0, private, -1)

    def cuMemMap(
        self, address: int, size: int, _offset: int, handle: int, _flags: int
    ) -> tuple[Any]:
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        self._mapped(address, size, writable, mmap.MAP_SHARED | _MAP_FIXED, handle)
        return (_OK,)

    def cuMemSetAccess(self, _address: int, _size: int, access: list, count: int) -> tuple[Any]:
        writable = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        assert [each.flags for each in access] == [writable] * count
        return (_OK,)

    def cuMemExportToShareableHandle(self, handle: int, _kind: Any, _flags: int) -> tuple[Any, int]:
        return _OK, os.dup(handle)

    def cuMemImportFromShareableHandle(self, descriptor: int, _kind: Any) -> tuple[Any, int]:
        return _OK, os.dup(descriptor)

    def _mapped(self, address: int, size: int, protection: int, flags: int, file: int) -> int:
        result = _libc.mmap(address or None, size, protection, flags, file, 0)
        assert result not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
        return result
