"""What the tool says while it works: one line when a long step begins, one when it ends."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from images.errors import ImageError

# The last lines of a failed command: enough for a traceback of pip or apt.
SHOWN_LINES = 30


def say(text: str) -> None:
    print(f"images: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announces what may take long, and says how long it took."""
    say(f"{text} …")
    began = time.monotonic()
    yield
    say(f"{text}: done in {time.monotonic() - began:.0f} s")


def run(
    command: Sequence[str],
    *,
    environment: dict[str, str] | None = None,
    stdin: str | None = None,
    folder: Path | None = None,
) -> str:
    """Standard output of a command, without the space around it. Raises ImageError with the end
    of what it printed if it fails."""
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            input=stdin,
            cwd=folder,
        )
    except FileNotFoundError:
        raise ImageError(f"{command[0]} is not installed") from None
    if result.returncode != 0:
        printed = "\n".join((result.stdout + result.stderr).splitlines()[-SHOWN_LINES:])
        raise ImageError(f"`{' '.join(command)}` failed:\n{printed}")
    return result.stdout.strip()
