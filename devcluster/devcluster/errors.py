"""The one exception that this tool raises on purpose."""

from __future__ import annotations

from pathlib import Path


class DevclusterError(Exception):
    """Something a person must act on: what went wrong, and what to do about it."""


def tail(log: Path, lines: int = 15) -> str:
    """The end of a component's log, indented, to show beside a failure."""
    try:
        text = log.read_text(errors="replace").splitlines()[-lines:]
    except OSError:
        return f"    ({log} cannot be read)"
    return "\n".join(f"    {line[:300]}" for line in text) or f"    ({log} is empty)"
