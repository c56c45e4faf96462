"""What may stay in a cache folder, and removing the rest.

Three kinds of entries, by who needs them:
- in use: a process holds it (locks.py). It always stays.
- kept: one of the newest revisions of a deployment used it, so that a pod that wakes from zero, or
  a rollback, finds its graphs. It stays while the folder is within its size.
- the others: they go.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from warmgraph_engine.store import layout, locks, marks, reading, writing
from warmgraph_engine.store.policy import Retention, User


@dataclass(frozen=True, slots=True)
class _Unused:
    path: Path
    bytes: int
    used_at: float
    users: frozenset[User]


def prune(root: Path, retention: Retention, *, user: User | None = None) -> list[Path]:
    """Remove what may not stay; returns what was removed. Raises OSError where the folder cannot be
    read.

    `user` is who does it: its deployment's revisions are counted, with this one as the newest, and
    those of other deployments are their own business. Without it the rule is applied to every
    deployment. The caller holds locks.writing(root).
    """
    entries = reading.entries(root)
    newest = _newest_first(entries, user)
    for owner in newest if user is None else [user.owner]:
        for revision in newest[owner][1 + retention.revisions :]:
            _forget(entries, User(owner, revision))
    unused, held_bytes = _sort_out(entries)
    removed = [entry for entry in unused if not entry.users]
    kept = [entry for entry in unused if entry.users]
    current = {User(owner, revisions[0]) for owner, revisions in newest.items()}
    kept.sort(key=lambda entry: (bool(entry.users & current), entry.used_at))
    total = held_bytes + sum(entry.bytes for entry in kept)
    for entry in kept:
        if total <= retention.max_bytes:
            break
        removed.append(entry)
        total -= entry.bytes
    gone = [entry.path for entry in removed if _remove(entry.path)]
    writing.remove_leftovers(root)
    return gone


def stored_bytes(entry: Path) -> int:
    """Size of an entry's files, as far as they can be seen."""
    sizes = (path.lstat().st_size for path in entry.rglob("*") if not path.is_dir())
    try:
        return sum(sizes)
    except OSError:
        return 0


def used_at(entry: Path) -> float:
    """When an entry was looked up or written last, in seconds since the epoch."""
    try:
        return (entry / layout.MANIFEST).stat().st_mtime
    except OSError:
        return 0.0


def _newest_first(entries: Iterable[Path], user: User | None) -> dict[str, list[str]]:
    """Revisions of every owner, by when they used any entry last."""
    seen: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for entry in entries:
        for (owner, revision), moment in marks.of(entry).items():
            seen[owner][revision] = max(moment, seen[owner].get(revision, 0.0))
    if user is not None:
        seen[user.owner][user.revision] = float("inf")  # whatever the clocks of its nodes say
    return {
        owner: sorted(revisions, key=lambda revision: revisions[revision], reverse=True)
        for owner, revisions in seen.items()
    }


def _forget(entries: Iterable[Path], user: User) -> None:
    for entry in entries:
        marks.unmark(entry, user)


def _sort_out(entries: Iterable[Path]) -> tuple[list[_Unused], int]:
    """The entries that may be removed, and the bytes of the others."""
    unused, held_bytes = [], 0
    for entry in entries:
        size = stored_bytes(entry)
        if locks.is_held(entry) or not _ours(entry):
            held_bytes += size
        else:
            unused.append(_Unused(entry, size, used_at(entry), frozenset(marks.of(entry))))
    return unused, held_bytes


def _remove(entry: Path) -> bool:
    """Out of sight in one step, so that a reader never sees half of an entry."""
    trash = entry.with_name(f"{layout.TRASH_PREFIX}{secrets.token_hex(8)}")
    try:
        try:
            with locks.removing(entry):
                entry.rename(trash)
        except (FileNotFoundError, NotADirectoryError):  # without a key file nobody can use it
            entry.rename(trash)
    except (locks.BusyError, OSError):
        return False
    return True


def _ours(entry: Path) -> bool:
    """Another user's files could be put out of sight, and never be removed."""
    return os.geteuid() in (entry.lstat().st_uid, 0)
