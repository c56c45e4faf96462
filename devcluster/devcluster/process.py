"""Starting and ending processes without ever touching one that is not ours.

A process is known by its pid, its start time and the boot it ran in: a pid alone may by now
belong to somebody else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Identity:
    """One process, once and for all."""

    pid: int
    start_ticks: int
    """Clock ticks from boot to the process's start: field 22 of /proc/PID/stat."""
    boot: str


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def parse_stat(stat: str) -> tuple[str, int]:
    """State and start time from /proc/PID/stat, whose second field may hold spaces and brackets."""
    fields = stat[stat.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def identify(pid: int) -> Identity | None:
    """The process that has this pid now, or None."""
    try:
        _, start = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (OSError, ValueError):
        return None
    return Identity(pid, start, boot_id())


def alive(process: Identity) -> bool:
    """Whether exactly this process still runs. A zombie does not."""
    try:
        state, start = parse_stat(Path(f"/proc/{process.pid}/stat").read_text())
    except (OSError, ValueError):
        return False
    if start != process.start_ticks or process.boot != boot_id():
        return False
    if state in "ZX":
        # If it was our own child, nobody else would reap it.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
        return False
    return True


def spawn(argv: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Identity:
    """Starts a process in a session of its own that outlives us, its output going to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = identify(pid)
    assert process is not None, "our own unreaped child always has a /proc entry"
    return process


def stop(process: Identity, *, grace_seconds: float = 5.0) -> None:
    """Asks the process to end, then makes it. Returns once it is gone."""
    for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
        if not alive(process):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        deadline = time.monotonic() + patience
        while alive(process) and time.monotonic() < deadline:
            time.sleep(0.02)
