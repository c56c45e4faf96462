"""What the tool says while it works: one line a step, with its time, on standard error.

Standard output is kept for answers (a kubeconfig's path, JSON), so that scripts can use them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Announces a step that took noticeable time once it is done."""
    start = time.monotonic()
    yield
    say(f"  {what} ({time.monotonic() - start:.1f} s)")


class Ticker:
    """Progress of one long job: rewrites its line on a terminal, else prints one every 15 s."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.start = time.monotonic()
        self.terminal = sys.stderr.isatty()
        # A CI log needs a sign of life, not a flood.
        self.every_seconds = 0.2 if self.terminal else 15.0
        self.next = self.start

    @property
    def elapsed(self) -> str:
        seconds = int(time.monotonic() - self.start)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def update(self, detail: str) -> None:
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + self.every_seconds
        line = f"  {self.what}: {detail}, {self.elapsed}"
        if self.terminal:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        else:
            say(line)

    def done(self, detail: str) -> None:
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr)
        say(f"  {self.what}: {detail} ({self.elapsed})")
