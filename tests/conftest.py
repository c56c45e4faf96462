"""Settings and fixtures that more than one subject needs."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same cases in every run of a commit, and no judgement by the clock: a test that fails must
# fail again for the person who looks into it, on a slower machine too. Another commit may bring
# other cases (Hypothesis also draws constants that it finds in the code): a property has to hold
# for all of them.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if wanting and (missing := _no_gpu_because()):
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=missing))


def _no_gpu_because() -> str:
    """Asked of the driver itself, as the engine does; empty where there is a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver on this machine (libcuda.so.1)"
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the NVIDIA driver of this machine finds no GPU"
    return ""


def _fetch(variant: str) -> Path:
    script = Path(__file__).parents[1] / "demo" / "fetch_model.py"
    command = [sys.executable, str(script), "--variant", variant]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct, fetched and converted once into the user's cache."""
    return _fetch("v1")


@pytest.fixture(scope="session")
def smollm2_v2() -> Path:
    """The second version: other weights in the last layer, another default system prompt."""
    return _fetch("v2")
