"""The GPU's context, as early as possible: creating it takes 0.2 s, in which Python may import."""

from __future__ import annotations

import ctypes

LIBRARY = "libcuda.so.1"


def create_context() -> None:
    """Create the primary context of the first GPU and keep it for this process.

    Whoever opens the device finds it there, or waits for it, or learns better than from here why
    there is none.
    """
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if not driver.cuInit(0) and not driver.cuDeviceGet(ctypes.byref(device), 0):
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
