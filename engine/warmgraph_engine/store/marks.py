"""Which revisions of which deployments use an entry: what retention goes by.

    ROOT/DIGEST/users/OWNER@REVISION   empty; its time is that of the last use

A start leaves its mark without waiting for any lock. Marks are advice: a missing one makes an entry
leave earlier, a wrong one later, and no graph is trusted for them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from warmgraph_engine.store import trust
from warmgraph_engine.store.policy import User

FOLDER = "users"


def mark(entry: Path, user: User) -> None:
    """Note that an entry is used now. Raises RefusalError or OSError."""
    with suppress(FileExistsError):
        (entry / FOLDER).mkdir(mode=0o750)
    folder = trust.open_folder(entry / FOLDER)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(str(user), flags, 0o640, dir_fd=folder)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)
    finally:
        os.close(folder)


def of(entry: Path) -> dict[User, float]:
    """When each revision used an entry last, in seconds since the epoch; none if that cannot be
    read."""
    found: dict[User, float] = {}
    with suppress(OSError), os.scandir(entry / FOLDER) as files:
        for file in files:
            with suppress(OSError, ValueError):
                found[User.parse(file.name)] = file.stat(follow_symlinks=False).st_mtime
    return found


def unmark(entry: Path, user: User) -> None:
    with suppress(OSError):
        (entry / FOLDER / str(user)).unlink()
