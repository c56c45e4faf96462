"""What `warmgraph cache` says of a cache folder, as lines of text. Functions raise OSError when
the folder cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from warmgraph_engine.store import locks, maintenance
from warmgraph_engine.store.locks import BusyError
from warmgraph_engine.store.maintenance import Summary

__all__ = ["BusyError", "description", "listing", "pruned", "verification"]


def listing(root: Path) -> list[str]:
    """A line for each entry, the last used first."""
    found = sorted(maintenance.summaries(root), key=lambda s: s.used_at, reverse=True)
    if not found:
        return ["no entries"]
    return [
        f"{'KEY':<12}  {'GRAPHS':>6}  {'SIZE':>9}  {'LAST USED':<20}  STATE",
        *map(_line, found),
    ]


def _line(summary: Summary) -> str:
    name = summary.path.name[:12]
    used = datetime.fromtimestamp(summary.used_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if summary.manifest is None:
        return f"{name:<12}  {'-':>6}  {'-':>9}  {used:<20}  refused: {summary.problem}"
    size = f"{summary.bytes / 1024:.0f} KiB"
    state = "in use" if summary.in_use else "unused"
    return f"{name:<12}  {len(summary.manifest.images):>6}  {size:>9}  {used:<20}  {state}"


def verification(root: Path) -> tuple[list[str], bool]:
    """A line for each entry, and whether all are sound."""
    found = list(maintenance.summaries(root, verify=True))
    lines = [f"{s.path.name[:12]}  {s.problem or 'ok'}" for s in found]
    return lines or ["no entries"], not any(s.problem for s in found)


def description(root: Path, prefix: str) -> list[str]:
    """Every field of the key and every bucket. Raises LookupError unless one entry fits."""
    fitting = [s for s in maintenance.summaries(root) if s.path.name.startswith(prefix)]
    if len(fitting) != 1:
        raise LookupError(f"{len(fitting)} entries begin with {prefix!r}; see: cache ls {root}")
    entry = fitting[0]
    if entry.key is None or entry.manifest is None or entry.plan is None:
        return [entry.path.name, f"refused: {entry.problem}"]
    fields = msgspec.to_builtins(entry.key)
    lines = [entry.path.name, *(f"  {name:<24} {value}" for name, value in fields.items())]
    planned = {(b.kind, b.size): b for b in entry.plan.buckets}
    for image in sorted(entry.manifest.images, key=lambda i: (i.kind, i.size)):
        facts = planned.get((image.kind, image.size))
        cost = f"captured in {facts.milliseconds:.0f} ms, hits {facts.hits}" if facts else ""
        answer = image.answer.digest[:12] if image.answer else "none"
        lines.append(f"  {image.kind:<8}{image.size:>6}  answer {answer:<12}  {cost}".rstrip())
    return lines


def pruned(root: Path, *, keep: int) -> list[str]:
    """Remove unused entries; a line for each. Raises BusyError if another process writes."""
    with locks.writing(root):
        removed = maintenance.prune(root, keep=keep)
    return [f"removed {path.name[:12]}" for path in removed] or ["nothing to remove"]
