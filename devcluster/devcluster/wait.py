"""Bounded waiting. Nothing in this tool waits without a limit and a reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from devcluster.errors import DevclusterError, tail


def wait_for(
    what: str,
    check: Callable[[], str | None],
    *,
    timeout_seconds: float,
    log: Path | None = None,
    alive: Callable[[], bool] | None = None,
) -> None:
    """Polls until `check` returns None; what it returns or raises before is why we still wait.

    `alive` ends the wait early when the process that we wait for has died. The error carries the
    last reason and the end of `log`.
    """
    deadline = time.monotonic() + timeout_seconds
    # Control planes start in seconds, and tests wait for them: look often, then less so.
    pause = 0.05
    while True:
        try:
            reason = check()
        except DevclusterError as error:
            reason = str(error)
        if reason is None:
            return
        died = alive is not None and not alive()
        if died or time.monotonic() > deadline:
            why = "its process ended" if died else f"not within {timeout_seconds:.0f} s"
            shown = f"\n  the end of {log}:\n{tail(log)}" if log else ""
            raise DevclusterError(f"{what}: {why}; last seen: {reason}{shown}")
        time.sleep(pause)
        pause = min(pause * 1.3, 0.5)
