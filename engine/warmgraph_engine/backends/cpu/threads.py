"""How many threads compute: the CPUs that this process may use, container limit included."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def available_cpus(cpu_max: str) -> int:
    """`cpu_max` is the content of cgroup v2's cpu.max ("QUOTA PERIOD" or "max PERIOD"), or empty.

    More threads than that would be throttled while they wait for each other.
    """
    cpus = len(os.sched_getaffinity(0))
    quota, _, period = cpu_max.strip().partition(" ")
    if quota.isdigit() and period.isdigit():
        cpus = min(cpus, max(1, math.floor(int(quota) / int(period))))
    return cpus


def use_available_cpus(*, shared_by: int = 1) -> None:
    """Set torch's threads, unless OMP_NUM_THREADS has decided. So many processes share the CPUs."""
    if "OMP_NUM_THREADS" in os.environ:
        return
    try:
        cpu_max = _CPU_MAX.read_text(encoding="ascii")
    except OSError:
        cpu_max = ""
    torch.set_num_threads(max(1, available_cpus(cpu_max) // shared_by))
