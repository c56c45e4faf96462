"""Memory that all ranks' GPUs write to, each rank's mapped into every process.

A rank allocates its own, exports it as a file descriptor, and maps those of the others
(CUDA's virtual memory management). A graph never holds one of these addresses: its kernels read
them from a table in the arena.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_engine.arena import ArenaLayout
from warmgraph_engine.backends.cuda.driver import CudaError, Device, check
from warmgraph_engine.backends.peers import Peers

_FILE = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class PeerMemory:
    """A layout that every rank has, zeroed. All ranks make theirs at the same time.

    Raises CudaError, or RuntimeError if a rank does not come.
    """

    def __init__(self, device: Device, layout: ArenaLayout, peers: Peers, rank: int) -> None:
        self.layout = layout
        self._device = device
        own = cuda.CUmemAllocationProp()
        own.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        own.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        own.location.id = device.ordinal
        own.requestedHandleTypes = _FILE
        least = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        granularity = int(check(cuda.cuMemGetAllocationGranularity(own, least)))
        self._size = -(-layout.bytes // granularity) * granularity
        handle = check(cuda.cuMemCreate(self._size, own, 0))
        self._base = self._map(handle)
        check(cuda.cuMemsetD8Async(self._base, 0, self._size, device.stream))
        device.synchronize()  # before anybody may write to it
        exported = int(check(cuda.cuMemExportToShareableHandle(handle, _FILE, 0)))
        descriptors = peers.exchange(exported)
        self._bases = [
            self._base if other == rank else self._import(descriptor)
            for other, descriptor in enumerate(descriptors)
        ]
        for descriptor in {exported, *descriptors}:
            os.close(descriptor)

    def address(self, name: str) -> int:
        return self._base + self.layout[name].offset

    def addresses(self, *names: str) -> NDArray[Any]:
        """int64 (names, ranks): where each rank has each region."""
        offsets = [self.layout[name].offset for name in names]
        return np.array([[base + offset for base in self._bases] for offset in offsets], np.int64)

    def _import(self, descriptor: int) -> int:
        return self._map(check(cuda.cuMemImportFromShareableHandle(descriptor, _FILE)))

    def _map(self, handle: Any) -> int:
        base = int(check(cuda.cuMemAddressReserve(self._size, 0, 0, 0)))
        check(cuda.cuMemMap(base, self._size, 0, handle, 0))
        access = cuda.CUmemAccessDesc()
        access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self._device.ordinal
        access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        check(cuda.cuMemSetAccess(base, self._size, [access], 1))
        return base


class Attendance:
    """Whether all ranks have come to the reductions so far, as the kernels tell the host."""

    def __init__(self, lost: NDArray[Any] | None = None) -> None:
        """`lost` is int32 (1,), 1 + the rank that did not come; None for a rank on its own."""
        self._lost = lost

    def check(self) -> None:
        """Raises CudaError. Call it behind whatever waited for a step."""
        if self._lost is not None and self._lost[0]:
            raise CudaError(f"rank {self._lost[0] - 1} has not come to an all-reduce")
