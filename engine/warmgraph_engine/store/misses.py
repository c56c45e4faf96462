"""Why nothing fits: the stored entry that comes nearest to a key, and what is different in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warmgraph_api.cachekey import CacheKey
from warmgraph_engine.store import layout, reading
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.retention import used_at
from warmgraph_engine.store.trust import RefusalError

Differences = dict[str, tuple[str | int, str | int]]
"""By field of the key: ours, theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    differences: Differences
    plan: Plan = field(default_factory=Plan)


def nearest(root: Path, key: CacheKey) -> Nearest | None:
    """The entry that differs in the fewest fields, of equals the one that was used last. Raises
    OSError where the folder cannot be read."""
    best: tuple[tuple[int, float], Path, Differences] | None = None
    for entry in reading.entries(root):
        try:
            differences = key.differences(reading.read_key(entry))
        except (OSError, RefusalError):
            continue
        rank = (len(differences), -used_at(entry))
        if differences and (best is None or rank < best[0]):
            best = rank, entry, differences
    if best is None:
        return None
    _, entry, differences = best
    try:
        return Nearest(differences=differences, plan=reading.read_entry(entry).plan)
    except (OSError, RefusalError):
        return Nearest(differences=differences)


def explain(differences: Differences) -> str:
    """For people: each field with our value and that of the stored graphs."""
    return "; ".join(
        f"{name} is {_short(ours)}, stored graphs have {_short(theirs)}"
        for name, (ours, theirs) in differences.items()
    )


def _short(value: str | int) -> str:
    """Digests are told apart by their first characters; people need no more."""
    text = str(value) or "empty"
    return text[:12] if layout.DIGEST.fullmatch(text) else text
