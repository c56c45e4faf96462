"""Locks on files. The kernel drops them when their process ends, however it ends: none is stale."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from warmgraph_engine.store.layout import KEY, LOCK


class BusyError(Exception):
    """Another process holds the lock."""


WAIT_SECONDS = 10.0
"""Another writer needs well under a second for an entry; after this one, go without."""

USE_WAIT_SECONDS = 0.5
"""Whoever looks whether an entry is held, holds it for a moment; a removal is one rename."""

_RETRY_SECONDS = 0.05


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Hold the lock of all writers. Raises BusyError when it stays taken, or OSError."""
    descriptor = _open(root / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        with suppress(OSError):  # if it is another's, that one has done so
            os.fchmod(descriptor, 0o660)  # whatever the umask: the group's other users lock it too
        deadline = time.monotonic() + WAIT_SECONDS
        while not _try(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise BusyError(f"another process has been writing to {root} for long")
            time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def use(entry: Path) -> int:
    """Mark an entry as in use until the descriptor is closed. Raises BusyError when somebody goes
    on holding it alone, or OSError, as once it was removed."""
    deadline = time.monotonic() + USE_WAIT_SECONDS
    while True:
        try:
            return _hold(entry, fcntl.LOCK_SH)
        except BusyError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_RETRY_SECONDS)


@contextmanager
def removing(entry: Path) -> Iterator[None]:
    """Hold an entry that nobody uses. Raises BusyError if somebody does, or OSError."""
    descriptor = _hold(entry, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def is_held(entry: Path) -> bool:
    """Whether somebody uses an entry. What cannot be locked is not ours to remove, and counts as
    held; what has no key is of use to nobody."""
    try:
        with removing(entry):
            return False
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (BusyError, OSError):
        return True


def _hold(entry: Path, kind: int) -> int:
    # NFS locks a file exclusively for those only who may write to it.
    descriptor = _open(entry / KEY, os.O_RDWR if kind == fcntl.LOCK_EX else os.O_RDONLY)
    try:
        if _try(descriptor, kind):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise BusyError(f"{entry} is in use")


def _open(path: Path, access: int) -> int:
    # Not blocking: a FIFO in place of the file must not hold up the start.
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, access | flags, 0o660)
    except OSError as error:
        # Whoever wants to write to a read-only volume is to know.
        hopeless = error.errno == errno.EROFS and access & os.O_CREAT
        if access != os.O_RDONLY and error.errno in (errno.EACCES, errno.EROFS) and not hopeless:
            with suppress(FileNotFoundError):
                return os.open(path, os.O_RDONLY | flags)
        raise


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
