"""What a cluster remembers about itself between two calls of the tool."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.console import say
from devcluster.errors import DevclusterError
from devcluster.process import Identity


@dataclass(frozen=True)
class Started:
    """A component as it was started."""

    identity: Identity
    fingerprint: str
    """Of its command line and configuration: when they change, it must be started anew."""


@dataclass
class Record:
    """cluster.json."""

    full: bool
    """A whole node, or only a control plane."""
    ports: dict[str, int]
    extras: list[str] = field(default_factory=list)
    """Optional components of a control plane: controller-manager, scheduler."""
    fake_gpus: int = 0
    owner: Identity | None = None
    """The test process that a throwaway control plane must not outlive."""
    sysctls: dict[str, str] = field(default_factory=dict)
    """Kernel settings as they were before `up`."""
    processes: dict[str, Started] = field(default_factory=dict)


def encode(record: Record) -> str:
    return json.dumps(dataclasses.asdict(record), indent=1)


def decode(text: str) -> Record:
    data = json.loads(text)
    owner = data.pop("owner")
    processes = data.pop("processes")
    return Record(
        **data,
        owner=Identity(**owner) if owner else None,
        processes={
            name: Started(Identity(**started["identity"]), started["fingerprint"])
            for name, started in processes.items()
        },
    )


def load(path: Path) -> Record | None:
    try:
        return decode(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DevclusterError(
            f"{path} is damaged ({error}); remove it after ending what it names"
        ) from error


def save(path: Path, record: Record) -> None:
    write_atomically(path, encode(record))


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Readers see the old text or the new, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.touch(mode=mode)
    temporary.write_text(text)
    temporary.replace(path)


@contextmanager
def locked(path: Path, *, what: str, timeout_seconds: float) -> Iterator[None]:
    """Holds a lock file, which ends with the process however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        deadline = time.monotonic() + timeout_seconds
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DevclusterError(
                        f"another devcluster is {what} and did not end within"
                        f" {timeout_seconds:.0f} s (it holds {path})"
                    ) from None
            if not told:
                say(f"  waiting for another devcluster that is {what}")
                told = True
            time.sleep(0.2)
        yield
