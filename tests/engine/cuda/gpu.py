"""A GPU that interprets its kernels: what the backend asks the driver for, in plain Python.

It is as lazy as a GPU may be. Nothing in a stream happens before somebody waits for it, and then
only as far as was waited for. So whoever writes to memory that a step has yet to read, or reads
what it has yet to write, gets wrong numbers here every time. Its time stands still but for kernels,
each of which takes a millisecond, and for what a test lets pass.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from cuda.bindings import driver

from tests.engine.cuda.interpreted import kernel_of
from warmgraph_engine.backends.cpu.memory import DTYPES
from warmgraph_engine.backends.cuda import compiler, quick
from warmgraph_engine.backends.cuda.compiler import Binary, Variant
from warmgraph_engine.backends.cuda.document import Kernel
from warmgraph_engine.backends.cuda.memory import Addresses

_OK = driver.CUresult.CUDA_SUCCESS
_MOST_THREADS = 1024
_SCALARS = {"i32": ctypes.c_int32, "fp32": ctypes.c_float}


def _parameters(variant: Variant) -> list[str]:
    """Of run time, in the kernel's order."""
    names = kernel_of(variant.kernel).arg_names
    return [name for name in names if name != "PDL" and name not in variant.constants]


class InterpretedGpu:
    """Its methods named cu… stand in for the driver's."""

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        self._numbers = itertools.count(1)
        self._streams: dict[int, deque[Callable[[], None]]] = {}
        self._captured: list[Callable[[], None]] | None = None
        self._done: dict[int, int] = {}
        self._timed: set[int] = set()
        self._recorded: dict[int, tuple[int, int]] = {}
        self.multiprocessors = 132
        self.compiled: list[str] = []
        """Kernels, in the order in which they were compiled."""
        self.milliseconds = 0
        """What its clock says."""
        self.executables = 0
        """Graphs that were instantiated and not destroyed."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in dir(self):
            if name.startswith("cu"):
                for module in (driver, quick):
                    if hasattr(module, name):
                        monkeypatch.setattr(module, name, getattr(self, name))
        monkeypatch.setattr(compiler, "compile_variant", self._compile)
        monkeypatch.setattr(compiler, "PROCESSES", 1)

    def map(self, *sets: Addresses) -> None:
        """Tell what lies where: kernels are given addresses, the interpreter wants tensors."""
        for addresses in sets:
            for name, region in addresses.regions.items():
                address = addresses[name]
                buffer = (ctypes.c_char * region.bytes).from_address(address)
                flat = torch.frombuffer(buffer, dtype=DTYPES[region.dtype])
                self._tensors[address] = flat.view(region.shape)

    @property
    def captures(self) -> bool:
        """Whether a stream is being captured."""
        return self._captured is not None

    def waiting(self) -> int:
        """Things that are yet to happen."""
        return sum(map(len, self._streams.values()))

    def _compile(self, variant: Variant) -> Binary:
        """A binary that says what to interpret."""
        self.compiled.append(variant.kernel)
        code = msgspec.json.encode(variant)
        described = Kernel(
            variant=variant.digest(),
            binary=hashlib.sha256(code).hexdigest(),
            name=variant.kernel,
            shared_bytes=0,
            threads=32 * variant.warps,
            parameters=tuple(_parameters(variant)),
        )
        return Binary(described, code)

    def _later(self, stream: Any, action: Callable[[], None]) -> tuple[Any]:
        if self._captured is not None:
            self._captured.append(action)
        else:
            self._streams[int(stream)].append(action)
        return (_OK,)

    # --- device ------------------------------------------------------------------------------

    def cuInit(self, _flags: int) -> tuple[Any]:
        return (_OK,)

    def cuDeviceGet(self, _number: int) -> tuple[Any, int]:
        return _OK, 0

    def cuDevicePrimaryCtxRetain(self, _device: int) -> tuple[Any, int]:
        return _OK, 0

    def cuCtxSetCurrent(self, _context: int) -> tuple[Any]:
        return (_OK,)

    def cuDeviceGetName(self, _size: int, _device: int) -> tuple[Any, bytes]:
        return _OK, b"interpreted"

    def cuDeviceGetAttribute(self, attribute: Any, _device: int) -> tuple[Any, int]:
        if attribute is driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            return _OK, self.multiprocessors
        return _OK, 9 if "MAJOR" in attribute.name else 0

    def cuGetErrorString(self, status: Any) -> tuple[Any, bytes]:
        return _OK, status.name.lower().encode()

    def cuDriverGetVersion(self) -> tuple[Any, int]:
        return _OK, 13000

    # --- memory ------------------------------------------------------------------------------

    def cuMemAlloc(self, size: int) -> tuple[Any, int]:
        buffer = ctypes.create_string_buffer(size + 256)
        address = (ctypes.addressof(buffer) + 255) // 256 * 256
        self._memory[address] = buffer
        return _OK, address

    def cuMemHostAlloc(self, size: int, _flags: int) -> tuple[Any, int]:
        return self.cuMemAlloc(size)

    def cuMemFreeHost(self, address: int) -> tuple[Any]:
        del self._memory[address]
        return (_OK,)

    def cuMemGetInfo(self) -> tuple[Any, int, int]:
        return _OK, 1 << 30, 1 << 30

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: Any) -> tuple[Any]:
        return self._later(stream, lambda: ctypes.memset(address, value, size))

    def cuMemcpyHtoD(self, to: int, source: int, size: int) -> tuple[Any]:
        ctypes.memmove(to, source, size)
        return (_OK,)

    def cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: Any) -> tuple[Any]:
        return self._later(stream, lambda: ctypes.memmove(to, source, size))

    def cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: Any) -> tuple[Any]:
        return self.cuMemcpyHtoDAsync(to, source, size, stream)

    # --- streams and events ------------------------------------------------------------------

    def cuStreamCreate(self, _flags: int) -> tuple[Any, Any]:
        number = next(self._numbers)
        self._streams[number] = deque()
        return _OK, driver.CUstream(number)

    def cuStreamDestroy(self, stream: Any) -> tuple[Any]:
        assert not self._streams.pop(int(stream))
        return (_OK,)

    def cuStreamSynchronize(self, stream: Any) -> tuple[Any]:
        waiting = self._streams[int(stream)]
        while waiting:
            waiting.popleft()()
        return (_OK,)

    def cuEventCreate(self, flags: int) -> tuple[Any, int]:
        event = next(self._numbers)
        if not flags & driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value:
            self._timed.add(event)
        return _OK, event

    def cuEventDestroy(self, event: int) -> tuple[Any]:
        self._recorded.pop(event, None)
        return (_OK,)

    def cuEventRecord(self, event: int, stream: Any) -> tuple[Any]:
        place = next(self._numbers)
        self._recorded[event] = int(stream), place
        return self._later(stream, lambda: self._done.update({place: self.milliseconds}))

    def cuEventQuery(self, _event: int) -> tuple[Any]:
        return (driver.CUresult.CUDA_ERROR_NOT_READY,)

    def cuEventSynchronize(self, event: int) -> tuple[Any]:
        if event in self._recorded:
            stream, place = self._recorded[event]
            while place not in self._done:
                self._streams[stream].popleft()()
        return (_OK,)

    def cuEventElapsedTime(self, begin: int, end: int) -> tuple[Any, float]:
        """In milliseconds, between their latest records."""
        if not {begin, end} <= self._timed & self._recorded.keys():
            return driver.CUresult.CUDA_ERROR_INVALID_HANDLE, 0.0
        places = [self._recorded[event][1] for event in (begin, end)]
        if not self._done.keys() >= set(places):
            return driver.CUresult.CUDA_ERROR_NOT_READY, 0.0
        return _OK, float(self._done[places[1]] - self._done[places[0]])

    # --- kernels and graphs ------------------------------------------------------------------

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, Variant]:
        return _OK, msgspec.json.decode(code, type=Variant)

    def cuModuleGetFunction(self, module: Variant, name: bytes) -> tuple[Any, Variant | None]:
        if name.decode() != module.kernel:
            return driver.CUresult.CUDA_ERROR_NOT_FOUND, None
        return _OK, module

    def cuLaunchKernelEx(
        self, config: Any, variant: Variant, parameters: int, _extra: int
    ) -> tuple[Any]:
        if config.blockDimX > _MOST_THREADS:
            return (driver.CUresult.CUDA_ERROR_INVALID_VALUE,)
        kernel, names = kernel_of(variant.kernel), _parameters(variant)
        pointers = (ctypes.c_void_p * len(names)).from_address(parameters)
        arguments = {}
        for name, pointer in zip(names, pointers, strict=True):
            kind = _SCALARS.get(variant.types[name], ctypes.c_uint64)
            value = kind.from_address(pointer).value  # now, as the driver does
            arguments[name] = value if kind is not ctypes.c_uint64 else self._tensors[value]
        constants: dict[str, Any] = dict(variant.constants)
        if "PDL" in kernel.arg_names:
            constants["PDL"] = 0
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)

        def run() -> None:
            kernel[grid](**arguments, **constants)
            self.milliseconds += 1

        return self._later(config.hStream, run)

    def cuStreamBeginCapture(self, _stream: Any, _mode: Any) -> tuple[Any]:
        self._captured = []
        return (_OK,)

    def cuStreamEndCapture(self, _stream: Any) -> tuple[Any, list[Callable[[], None]]]:
        captured, self._captured = self._captured, None
        assert captured is not None
        return _OK, captured

    def cuGraphInstantiate(self, graph: list[Callable[[], None]], _flags: int) -> tuple[Any, Any]:
        self.executables += 1
        return _OK, tuple(graph)

    def cuGraphDestroy(self, _graph: Any) -> tuple[Any]:
        return (_OK,)

    def cuGraphUpload(self, _graph: Any, _stream: Any) -> tuple[Any]:
        return (_OK,)

    def cuGraphExecDestroy(self, _graph: Any) -> tuple[Any]:
        self.executables -= 1
        return (_OK,)

    def cuGraphLaunch(self, graph: Any, stream: Any) -> tuple[Any]:
        for launch in graph:
            self._later(stream, launch)
        return (_OK,)
