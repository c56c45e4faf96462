"""What the demo prints: numbered steps, what happened in each, and how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_steps = 0


def say(text: str) -> None:
    print(f"     {text}", flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """One numbered step; prints its duration when it ends well."""
    global _steps  # noqa: PLW0603 -- one demo a process, and its steps are numbered
    _steps += 1
    print(f"\n[{_steps}] {title}", flush=True)
    began = time.monotonic()
    yield
    print(f"     done in {time.monotonic() - began:.1f} s", flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell; the first one left-aligned, the others right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        say("  ".join(cells))


def fail(message: str) -> None:
    """End the demo with a message for whoever must act."""
    print(f"\ndemo: {message}", file=sys.stderr, flush=True)
    raise SystemExit(1)
