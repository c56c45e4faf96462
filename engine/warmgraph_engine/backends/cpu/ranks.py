"""The ranks of a CPU engine find each other: torch's process group over gloo."""

from __future__ import annotations

import atexit
import os
from datetime import timedelta
from pathlib import Path

from torch import distributed


def join(folder: Path, *, rank: int, ranks: int, timeout_seconds: float) -> None:
    """Meet the other ranks in an empty folder that all of them see; returns when all are there.

    Raises RuntimeError if one does not come in time. From then on a rank that is silent for as long
    makes an all-reduce fail on the others, if nobody has ended it before (parallel/ranks.py).
    """
    _leave()  # the group of an engine that this process ran before
    # All ranks are on this machine. The default is whatever its host name means, if anything.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'gloo'}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout_seconds),
    )


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


# Before the libraries' own end: a thread of gloo's that is left then aborts the process.
atexit.register(_leave)
