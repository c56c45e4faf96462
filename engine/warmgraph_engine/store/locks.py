"""Locks on files. The kernel drops them when their process ends, however it ends: none is stale."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warmgraph_engine.store.layout import KEY, LOCK


class BusyError(Exception):
    """Another process holds the lock."""


WAIT_SECONDS = 10.0
"""Another writer needs well under a second for an entry; after this one, go without."""

_RETRY_SECONDS = 0.05


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Hold the lock of all writers. Raises BusyError when it stays taken, or OSError."""
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o660)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _try(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise BusyError(f"another process has been writing to {root} for long")
            time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def use(entry: Path) -> int:
    """Mark an entry as in use until the descriptor is closed. Raises BusyError while it is being
    removed, or OSError."""
    return _hold(entry, fcntl.LOCK_SH)


@contextmanager
def removing(entry: Path) -> Iterator[None]:
    """Hold an entry that nobody uses. Raises BusyError if somebody does, or OSError."""
    descriptor = _hold(entry, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def _hold(entry: Path, kind: int) -> int:
    # Not blocking: a FIFO in place of the file must not hold up the start.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(entry / KEY, flags)
    if _try(descriptor, kind):
        return descriptor
    os.close(descriptor)
    raise BusyError(f"{entry} is in use")


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
