"""One command at a time works on the builder's storage: what one has just built, another must not
remove as old, and two should not install the same gigabytes side by side."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from images import paths
from images.console import say


@contextmanager
def turn() -> Iterator[None]:
    """Waits until no other process of this user is in here. Ends with the process at the latest."""
    paths.cache().mkdir(parents=True, exist_ok=True)
    with (paths.cache() / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is at work; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
