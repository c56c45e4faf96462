"""The document of a CUDA graph: JSON, one node per kernel launch.

    {"format": 2, "kind": "decode", "size": 4,
     "regions": {"weights.embedding": ["bfloat16", [32000, 2048]], …},
     "kernels": [{"variant": "SHA-256 in hex", "binary": "SHA-256 in hex", "name": "linear",
                  "shared_bytes": 163840, "threads": 128, "parameters": ["x_ptr", …]}, …],
     "nodes": [{"kernel": 0, "grid": [48, 2, 1], "overlaps": true,
                "arguments": [["region", "work.x"], ["i32", 4], ["f32", 0.125],
                              ["address", 0], ["address", 0]]}, …]}

Nodes are a chain: each waits for the one before, and may be resident before that one has ended if
it overlaps. Memory is referred to by region, one of those that the document lists; the only address
is 0, for pointers that no kernel uses. Regions `host.…` exist once for each of the sets of host
buffers that steps take in turns; only the first nodes may refer to them.
"""

from __future__ import annotations

import msgspec

FORMAT = 2

SCRATCH = (("address", 0), ("address", 0))
"""The last arguments of every node: Triton's functions end in two pointers to scratch memory, which
ours do without."""


class Kernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A compiled kernel; compiler.py makes them."""

    variant: str
    """What it was compiled from and for: a later step that wants the same need not compile it."""
    binary: str
    """SHA-256 of the machine code, in hex."""
    name: str
    """Of the function in it."""
    shared_bytes: int
    threads: int
    parameters: tuple[str, ...]
    """Run-time parameters, in the order in which the function takes them."""


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kernel: int
    """Index into the kernels."""
    grid: tuple[int, int, int]
    arguments: list[tuple[str, str | int | float]]
    """In the order of the kernel's parameters, and then SCRATCH."""
    overlaps: bool


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    kind: str
    size: int
    regions: dict[str, tuple[str, tuple[int, ...]]]
    """Type and shape of every region that a node refers to."""
    kernels: list[Kernel]
    nodes: list[Node]


def encode(document: Document) -> bytes:
    return msgspec.json.encode(document)


def decode(data: bytes) -> Document:
    """Raises msgspec.DecodeError or msgspec.ValidationError."""
    return msgspec.json.decode(data, type=Document)
