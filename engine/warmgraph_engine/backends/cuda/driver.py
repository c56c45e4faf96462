"""The CUDA driver: calls that raise, and the one device of this process."""

from __future__ import annotations

import threading
from typing import Any

from cuda.bindings import driver as cuda

from warmgraph_engine.backends.cuda import quick


class CudaError(RuntimeError):
    """A call of the driver failed, or a kernel did; most such errors end the process's use of
    the GPU."""


def check(result: tuple[Any, ...]) -> Any:
    """The values of a driver call, without its status. Raises CudaError."""
    status, *values = result
    if status != cuda.CUresult.CUDA_SUCCESS:
        _, text = cuda.cuGetErrorString(status)
        message = text.decode() if text else "unknown error"
        raise CudaError(f"{status.name.removeprefix('CUDA_ERROR_')}: {message}")
    return values[0] if len(values) == 1 else tuple(values)


def wait_for(event: Any) -> None:
    """Gives up the interpreter only where there is something to wait for. Raises CudaError for
    whatever failed in the event's stream."""
    if quick.cuEventQuery(event)[0] != cuda.CUresult.CUDA_SUCCESS:
        check(cuda.cuEventSynchronize(event))


class Device:
    """One of the GPUs that this process may see, with its primary context."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        check(cuda.cuInit(0))
        self._device = check(cuda.cuDeviceGet(ordinal))
        self._context = check(cuda.cuDevicePrimaryCtxRetain(self._device))
        self._thread = threading.local()
        self.use()
        self.name = check(cuda.cuDeviceGetName(256, self._device)).split(b"\0")[0].decode()
        attribute = cuda.CUdevice_attribute
        major, minor, multiprocessors = (
            check(cuda.cuDeviceGetAttribute(name, self._device))
            for name in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )
        )
        self.multiprocessors = int(multiprocessors)
        self.capability = 10 * int(major) + int(minor)
        self.cuda_version = int(check(cuda.cuDriverGetVersion()))
        self.allocations = 0
        """Asked of the driver so far: once the engine serves, no more are."""
        self.launches = 0
        """Kernels handed over one by one so far; those of a graph are not counted."""
        self.stream = check(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value))

    def allocate(self, size: int) -> int:
        """Address of device memory. Raises CudaError."""
        self.allocations += 1
        return int(check(cuda.cuMemAlloc(size)))

    def allocate_pinned(self, size: int) -> int:
        """Address of host memory that the GPU reads and writes directly. Raises CudaError."""
        self.allocations += 1
        return int(check(cuda.cuMemHostAlloc(size, cuda.CU_MEMHOSTALLOC_PORTABLE)))

    def use(self) -> None:
        """Make the context current in the calling thread."""
        if not getattr(self._thread, "uses", False):
            check(cuda.cuCtxSetCurrent(self._context))
            self._thread.uses = True

    def synchronize(self) -> None:
        """Wait for the stream. Raises CudaError for whatever failed in it."""
        check(cuda.cuStreamSynchronize(self.stream))

    def free_bytes(self) -> int:
        return int(check(cuda.cuMemGetInfo())[0])
