"""Listing, verifying and pruning a cache folder."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warmgraph_api.cachekey import CacheKey
from warmgraph_engine.store import layout, locks, reading, writing
from warmgraph_engine.store.layout import Manifest, Plan
from warmgraph_engine.store.trust import RefusalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One entry, as far as it can be read."""

    path: Path
    key: CacheKey | None = None
    manifest: Manifest | None = None
    plan: Plan | None = None
    used_at: float = 0.0
    """Seconds since the epoch."""
    in_use: bool = False
    problem: str = ""
    """Why it would be refused, or empty."""

    @property
    def bytes(self) -> int:
        return sum(facts.bytes for facts in self.manifest.files.values()) if self.manifest else 0


def summaries(root: Path, *, verify: bool = False) -> Iterator[Summary]:
    """Every entry; with `verify` every checksum is compared. Raises OSError for the root."""
    for entry in reading.entries(root):
        yield summary(entry, verify=verify)


def summary(entry: Path, *, verify: bool = False) -> Summary:
    try:
        stored = reading.read_entry(entry)
        if verify:
            reading.read_images(entry, stored.manifest)
    except RefusalError as error:
        return Summary(path=entry, problem=str(error), used_at=_used_at(entry))
    except OSError as error:
        return Summary(path=entry, problem=f"{error.filename}: {error.strerror}")
    return Summary(
        path=entry,
        key=stored.key,
        manifest=stored.manifest,
        plan=stored.plan,
        used_at=_used_at(entry),
        in_use=_in_use(entry),
    )


def prune(root: Path, *, keep: int) -> list[Path]:
    """Remove all but the `keep` entries that were used last; those in use stay in any case.

    The caller holds locks.writing(root). Returns what was removed. Raises OSError.
    """
    unused = [entry for entry in reading.entries(root) if not _in_use(entry)]
    unused.sort(key=_used_at, reverse=True)
    removed = []
    for entry in unused[keep:]:
        try:
            with locks.removing(entry):
                _discard(entry)
        except locks.BusyError:
            continue
        except FileNotFoundError:  # without a key file nobody can use it
            _discard(entry)
        removed.append(entry)
    writing.remove_leftovers(root)
    return removed


def _discard(entry: Path) -> None:
    """Out of sight in one step; a reader never sees half of an entry."""
    entry.rename(entry.with_name(f"{layout.TRASH_PREFIX}{secrets.token_hex(8)}"))


def _in_use(entry: Path) -> bool:
    try:
        with locks.removing(entry):
            return False
    except locks.BusyError:
        return True
    except OSError:
        return False


def _used_at(entry: Path) -> float:
    try:
        return (entry / layout.MANIFEST).stat().st_mtime
    except OSError:
        return 0.0
