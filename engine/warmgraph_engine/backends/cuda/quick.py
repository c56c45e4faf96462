"""Calls of the driver that return at once, made without giving up the interpreter.

cuda.bindings lets other threads run during each call. Whoever has given up the interpreter to a
busy event loop gets it back a switch interval later (half a millisecond, see main.py), and a step
makes eight calls: more time than it takes on the GPU. These are the same calls, for the same
values, as functions that keep it. None of them waits for the GPU.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, TypeAlias

from cuda.bindings import driver as cuda

from warmgraph_engine.backends.cuda.context import LIBRARY

Status: TypeAlias = cuda.CUresult


@cache
def _library() -> Any:
    library = ctypes.PyDLL(LIBRARY)
    pointer = ctypes.c_void_p
    for name, types in {
        "cuEventRecord": (pointer, pointer),
        "cuEventQuery": (pointer,),
        "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), pointer, pointer),
        "cuLaunchKernelEx": (pointer, pointer, pointer, pointer),
        "cuGraphLaunch": (pointer, pointer),
        "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, pointer, ctypes.c_size_t, pointer),
    }.items():
        getattr(library, name).argtypes = types
    return library


def cuEventRecord(event: Any, stream: Any) -> tuple[Status]:
    return (Status(_library().cuEventRecord(int(event), int(stream))),)


def cuEventQuery(event: Any) -> tuple[Status]:
    return (Status(_library().cuEventQuery(int(event))),)


def cuEventElapsedTime(begin: Any, end: Any) -> tuple[Status, float]:
    milliseconds = ctypes.c_float()
    status = _library().cuEventElapsedTime(ctypes.byref(milliseconds), int(begin), int(end))
    return Status(status), milliseconds.value


def cuLaunchKernelEx(config: Any, function: Any, parameters: int, extra: int) -> tuple[Status]:
    """`config` is a CUlaunchConfig."""
    call = _library().cuLaunchKernelEx
    return (Status(call(config.getPtr(), int(function), parameters, extra)),)


def cuMemcpyHtoDAsync(target: int, source: int, size: int, stream: Any) -> tuple[Status]:
    """From pinned memory."""
    return (Status(_library().cuMemcpyHtoDAsync_v2(target, source, size, int(stream))),)


def cuGraphLaunch(graph: Any, stream: Any) -> tuple[Status]:
    return (Status(_library().cuGraphLaunch(int(graph), int(stream))),)
