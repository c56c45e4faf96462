"""The device arena and pinned host memory."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np
from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_engine.arena import ArenaLayout
from warmgraph_engine.backends.cuda.driver import CudaError, Device, check
from warmgraph_engine.models.config import ModelError


class DeviceArena:
    """One allocation for a layout, zeroed. Raises ModelError if the GPU has not got the memory."""

    def __init__(self, device: Device, layout: ArenaLayout) -> None:
        self.layout = layout
        free = device.free_bytes()
        try:
            self._base = device.allocate(layout.bytes)
        except CudaError as error:
            raise ModelError(
                f"the model, its KV cache and its buffers need {layout.bytes / 2**30:.1f} GiB of"
                f" GPU memory, and {free / 2**30:.1f} GiB are free: {error}"
            ) from error
        # Counters must start at zero, and padding reads the dummy block before anyone wrote it.
        check(cuda.cuMemsetD8Async(self._base, 0, layout.bytes, device.stream))

    def address(self, name: str) -> int:
        return self._base + self.layout[name].offset


class PinnedMemory:
    """Host memory that the GPU reads and writes directly."""

    def __init__(self, device: Device, size: int) -> None:
        self.size = size
        self.address = device.allocate_pinned(size)
        self._buffer = memoryview((ctypes.c_char * size).from_address(self.address)).cast("B")

    def array(self, shape: tuple[int, ...], dtype: str, offset: int = 0) -> NDArray[Any]:
        """A view, valid until free()."""
        return np.ndarray(shape, dtype=dtype, buffer=self._buffer, offset=offset)

    def view(self) -> memoryview:
        return self._buffer

    def free(self) -> None:
        check(cuda.cuMemFreeHost(self.address))


class HostRegions:
    """Pinned memory for a layout, zeroed."""

    def __init__(self, device: Device, layout: ArenaLayout) -> None:
        self.layout = layout
        self._memory = PinnedMemory(device, layout.bytes)
        self._memory.array((layout.bytes,), "uint8")[:] = 0

    def address(self, name: str) -> int:
        return self._memory.address + self.layout[name].offset

    def array(self, name: str) -> NDArray[Any]:
        region = self.layout[name]
        return self._memory.array(region.shape, region.dtype, region.offset)


class Mapped(Protocol):
    """Memory for a layout."""

    @property
    def layout(self) -> ArenaLayout: ...
    def address(self, name: str) -> int: ...


class Addresses:
    """Regions by name: of the arena, of the results, of one set of host buffers, and of the memory
    that several ranks share."""

    def __init__(self, *parts: Mapped) -> None:
        self.regions = {region.name: region for part in parts for region in part.layout}
        self.by_name = {
            region.name: part.address(region.name) for part in parts for region in part.layout
        }

    def __getitem__(self, name: str) -> int:
        return self.by_name[name]
