"""What the cache key says of this machine's GPU and compiler."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

from warmgraph_engine.backends.cuda.driver import Device


def device_facts(ordinal: int = 0) -> dict[str, str]:
    device = Device(ordinal)
    return {
        "device_name": device.name,
        "device_architecture": f"sm_{device.capability}",
        "driver": _driver_version() or f"api {device.cuda_version}",
        "cuda": f"{device.cuda_version // 1000}.{device.cuda_version % 1000 // 10}",
        # No torch has a part in a CUDA graph; the compiler of its kernels does.
        "torch": f"none; triton {version('triton')}",
    }


def _driver_version() -> str:
    """Of the kernel module, such as 580.159.04; empty where the system does not tell."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"Kernel Module\D*(\d+(?:\.\d+)+)", text)
    return found[1] if found else ""
