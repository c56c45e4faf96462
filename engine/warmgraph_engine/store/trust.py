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

MOST_BYTES = 256 << 20
"""Of one file. The largest of ours have some hundred KiB; one of a thousand times that is not ours,
and reading it could take all memory of the pod."""


class RefusalError(Exception):
    """Stored data must not be used; the message says which file and why."""


def describe(error: OSError) -> str:
    """What failed, for people; locks and reads don't know their file."""
    return f"{error.filename or 'the cache'}: {error.strerror or error}"


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
    return _open(path, os.O_DIRECTORY)


def read_file(folder: Path, name: str) -> bytes:
    """The content of a trusted file of a folder, or of a trusted folder in it ("images/a.json").
    Raises RefusalError or OSError.

    Each step starts from the descriptor that was checked, so that what is read is what was
    checked, whatever is renamed meanwhile.
    """
    *between, last = name.split("/")
    path, place = folder, open_folder(folder)
    try:
        for part in between:
            path /= part
            inner = _open(path, os.O_DIRECTORY, place=place)
            os.close(place)
            place = inner
        # Not blocking: a FIFO put in place of the file must not hold up the start.
        descriptor = _open(path / last, os.O_NONBLOCK, place=place)
    finally:
        os.close(place)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise RefusalError(f"{path / last} is not a plain file")
        if facts.st_size > MOST_BYTES:
            raise RefusalError(f"{path / last} has {facts.st_size} bytes, which no such file has")
        return file.read(MOST_BYTES)


def _open(path: Path, flags: int, *, place: int | None = None) -> int:
    """A descriptor of a trusted file or folder; `place` is one of the folder that it lies in."""
    flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path if place is None else path.name, flags, dir_fd=place)
    except OSError as error:
        if path.is_symlink():
            raise RefusalError(f"{path} is a symbolic link, which is not followed") from error
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        check(os.fstat(descriptor), path)
    except RefusalError:
        os.close(descriptor)
        raise
    return descriptor
