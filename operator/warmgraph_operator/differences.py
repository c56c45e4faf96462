"""Whether a live object already is what should be: the question that keeps a steady state free
of writes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from warmgraph_api import labels
from warmgraph_operator.kinds import Object
from warmgraph_operator.quantity import quantity

APPLIED = f"{labels.GROUP}/applied"
"""Annotation with the digest of the fields that were last applied: it tells that a field is no
longer wanted, which the live object alone cannot."""

# Lists whose items have a name of their own; everything else is compared by position.
_LIST_KEYS = ("name", "mountPath", "containerPort", "uid")

_QUANTITIES = frozenset({"requests", "limits"})
"""Fields that hold quantities, which the API server writes in its own way (1024Mi as 1Gi)."""


def stamp(wanted: Object) -> Object:
    """The object with the digest of its own content as an annotation. A number of replicas is
    always there to be compared, and may be another's to write, so it is not part of it."""
    spec = {key: value for key, value in wanted.get("spec", {}).items() if key != "replicas"}
    text = json.dumps({**wanted, "spec": spec}, sort_keys=True, separators=(",", ":"))
    value = hashlib.sha256(text.encode()).hexdigest()[:16]
    metadata = wanted["metadata"]
    annotations = {**metadata.get("annotations", {}), APPLIED: value}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def applied_stamp(live: Object) -> str:
    return str((live["metadata"].get("annotations") or {}).get(APPLIED, ""))


def is_applied(wanted: Object, live: Object) -> bool:
    """wanted: stamped. True where every field of it stands in the live object, and nothing else
    was ever applied."""
    return applied_stamp(wanted) == applied_stamp(live) and _covers(live, wanted)


def _covers(live: Any, wanted: Any, *, quantities: bool = False) -> bool:
    if isinstance(wanted, dict):
        if not isinstance(live, dict):
            return not wanted and live is None
        return all(
            _covers(live.get(key), value, quantities=quantities or key in _QUANTITIES)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return _covers_list(live or [], wanted)
    if quantities and isinstance(live, str | int) and isinstance(wanted, str | int):
        return _same_quantity(live, wanted)
    # A zero value that the API server does not store is the same as an absent one.
    return bool(live == wanted or (live is None and not wanted))


def _covers_list(live: list[Any], wanted: list[Any]) -> bool:
    """Items of ours, each covered; items that others added stay theirs."""
    key = _list_key(wanted)
    if key is None:
        return len(live) == len(wanted) and all(map(_covers, live, wanted))
    by_key = {item.get(key): item for item in live if isinstance(item, dict)}
    return all(_covers(by_key.get(item[key]), item) for item in wanted)


def _list_key(items: list[Any]) -> str | None:
    for key in _LIST_KEYS:
        values = [item.get(key) for item in items if isinstance(item, dict)]
        if items and len(values) == len(items) and None not in values:
            return key if len(set(values)) == len(values) else None
    return None


def _same_quantity(one: str | int, other: str | int) -> bool:
    try:
        return quantity(one) == quantity(other)
    except ValueError:
        return one == other
