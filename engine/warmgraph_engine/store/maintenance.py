"""What is in a cache folder, for the people who look into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from warmgraph_api.cachekey import CacheKey
from warmgraph_engine.store import locks, marks, reading, retention
from warmgraph_engine.store.layout import Manifest, Plan
from warmgraph_engine.store.policy import User
from warmgraph_engine.store.trust import RefusalError, describe


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One entry, as far as it can be read."""

    path: Path
    key: CacheKey | None = None
    manifest: Manifest | None = None
    plan: Plan | None = None
    bytes: int = 0
    """Of all its files."""
    used_at: float = 0.0
    """Seconds since the epoch."""
    users: tuple[User, ...] = ()
    """Revisions that it is kept for, the last one to use it first."""
    in_use: bool = False
    problem: str = ""
    """Why it would be refused, or empty."""


def summaries(root: Path, *, verify: bool = False) -> Iterator[Summary]:
    """Every entry; with `verify` every checksum is compared. Raises OSError for the root."""
    for entry in reading.entries(root):
        yield summary(entry, verify=verify)


def summary(entry: Path, *, verify: bool = False) -> Summary:
    moments = marks.of(entry)
    seen = Summary(
        path=entry,
        bytes=retention.stored_bytes(entry),
        used_at=retention.used_at(entry),
        users=tuple(sorted(moments, key=lambda user: moments[user], reverse=True)),
        in_use=locks.is_held(entry),
    )
    try:
        stored = reading.read_whole(entry)[0] if verify else reading.read_entry(entry)
    except RefusalError as error:
        return replace(seen, problem=str(error))
    except OSError as error:
        return replace(seen, problem=describe(error))
    return replace(seen, key=stored.key, manifest=stored.manifest, plan=stored.plan)
