"""What `warmgraph cache` says of a cache folder, as lines of text. Functions raise OSError when
the folder cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from warmgraph_engine.store import locks, maintenance, retention
from warmgraph_engine.store.locks import BusyError
from warmgraph_engine.store.maintenance import Summary
from warmgraph_engine.store.policy import Retention

__all__ = ["BusyError", "description", "listing", "pruned", "verification"]

_NAME_LENGTH = 12
"""Of a digest: enough to tell entries apart, and to name one on the command line."""


def listing(root: Path) -> list[str]:
    """A line for each entry, the last used first."""
    found = sorted(maintenance.summaries(root), key=lambda s: s.used_at, reverse=True)
    if not found:
        return ["no entries"]
    return [_row("KEY", "GRAPHS", "SIZE", "LAST USED", "STATE", "USED BY"), *map(_line, found)]


def _line(summary: Summary) -> str:
    graphs = "-" if summary.manifest is None else str(len(summary.manifest.images))
    size = f"{summary.bytes / 1024:.0f} KiB"
    return _row(_name(summary), graphs, size, _moment(summary.used_at), *_state(summary))


def _row(*cells: str) -> str:
    return "{:<12}  {:>6}  {:>9}  {:<20}  {:<7}  {}".format(*cells).rstrip()


def _state(summary: Summary) -> tuple[str, str]:
    """In one word, and what there is to say about it."""
    if summary.problem:
        return "refused", summary.problem
    users = [str(user) for user in summary.users]
    more = f" and {len(users) - 1} more" if len(users) > 1 else ""
    state = "in use" if summary.in_use else "kept" if users else "unused"
    return state, users[0] + more if users else ""


def _name(summary: Summary) -> str:
    return summary.path.name[:_NAME_LENGTH]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def verification(root: Path) -> tuple[list[str], bool]:
    """A line for each entry, and whether all are sound."""
    found = list(maintenance.summaries(root, verify=True))
    lines = [f"{_name(s)}  {s.problem or 'ok'}" for s in found]
    return lines or ["no entries"], not any(s.problem for s in found)


def description(root: Path, prefix: str) -> list[str]:
    """Every field of the key, every bucket and every user. Raises LookupError unless one entry
    fits."""
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
    return [*lines, *(f"  used by {user}" for user in entry.users)]


def pruned(root: Path, kept: Retention) -> list[str]:
    """Remove what need not be kept; a line for each entry. Raises BusyError if another process
    writes."""
    with locks.writing(root):
        removed = retention.prune(root, kept)
    return [f"removed {path.name[:_NAME_LENGTH]}" for path in removed] or ["nothing to remove"]
