"""Reading files that decide what the engine runs: only from owners we trust, without races.

Trusted is what belongs to this process's user or to root and cannot be written by others. A
group may write if this process is in it: Kubernetes gives a volume's files to the pod's `fsGroup`
and makes them group-writable at every mount. The folder above the entries may be world-writable,
as an emptyDir is; whoever puts something of their own there is its owner, and is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class RefusalError(Exception):
    """Stored data must not be used; the message says which file and why."""


def check(facts: os.stat_result, path: Path) -> None:
    """Raises RefusalError if somebody else could have written this file or folder."""
    user = os.geteuid()
    if facts.st_uid not in (user, 0):
        raise RefusalError(f"{path} belongs to user {facts.st_uid}, not to {user} or root")
    if facts.st_mode & stat.S_IWOTH:
        raise RefusalError(f"{path} can be written by everyone")
    groups = {os.getegid(), *os.getgroups()}
    if facts.st_mode & stat.S_IWGRP and facts.st_gid not in groups:
        raise RefusalError(f"{path} can be written by group {facts.st_gid}, which is not ours")


def open_folder(path: Path) -> int:
    """A descriptor of a trusted folder. Raises RefusalError or OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        check(os.fstat(descriptor), path)
    except RefusalError:
        os.close(descriptor)
        raise
    return descriptor


def read_file(folder: Path, name: str) -> bytes:
    """The content of a trusted file of a folder. Raises RefusalError or OSError."""
    path = folder / name
    # Not blocking: a FIFO put in place of the file must not hold up the start.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise RefusalError(f"{path} is not a plain file")
        check(facts, path)
        return file.read()
