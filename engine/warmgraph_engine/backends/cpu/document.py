"""The document of a CPU graph: JSON, one node per operation.

    {"format": 1, "kind": "decode", "size": 4, "workspace_bytes": …,
     "regions": {"weights.embedding": ["float32", [49152, 576]], …},
     "nodes": [{"op": "aten.mm.default", "args": [{"value": 3}, {"region": "…"}], "out": [4]}, …]}

An argument is a number, a string, true, false, null, a list of arguments, or an object with one
member: `region` (memory of the arena), `value` (an earlier node's output) or `dtype`.
"""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT = 1


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    op: str
    args: list[Any]
    kwargs: dict[str, Any] = {}
    out: list[int] = []
    """Values that its outputs become; empty for operations that only write into an argument."""


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    kind: str
    size: int
    workspace_bytes: int
    """Most memory that intermediate values take at once."""
    regions: dict[str, tuple[str, tuple[int, ...]]]
    """Type and shape of every region that a node refers to."""
    nodes: list[Node]


def encode(document: Document) -> bytes:
    return msgspec.json.encode(document)


def decode(data: bytes) -> Document:
    """Raises msgspec.DecodeError or msgspec.ValidationError."""
    try:
        return msgspec.json.decode(data, type=Document)
    except RecursionError as error:  # arguments may be lists of lists
        raise msgspec.DecodeError(str(error)) from error
