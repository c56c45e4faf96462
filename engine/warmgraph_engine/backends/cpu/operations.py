"""The operations that a CPU graph may consist of, and how they are written in a document.

A closed list, for both directions: recording stops at anything that a replay could not repeat (a
value read back to Python, a random number), and a document can name nothing else, whoever wrote
it.
"""

from __future__ import annotations

from typing import Any

import torch

from warmgraph_engine.backends.cpu import kernels as _kernels  # registers torch.ops.warmgraph

VIEWS = frozenset(
    {
        "aten.chunk.default",
        "aten.flatten.using_ints",
        "aten.select.int",
        "aten.slice.Tensor",
        "aten.split_with_sizes.default",
        "aten.t.default",
        "aten.unbind.int",
        "aten.unsqueeze.default",
        "aten.view.default",
    }
)
"""Give the same memory another shape: done once, when a graph is loaded, if the memory is the
arena's."""

OPERATIONS = VIEWS | frozenset(
    {
        "aten.add_.Tensor",
        "aten.addcmul_.default",
        "aten.addmm_.default",
        "aten.copy_.default",
        "aten.gelu.default",
        "aten.index_select.default",
        "aten.layer_norm.default",
        "aten.linear.default",
        "aten.mm.default",
        "aten.mm.out",
        "aten.mul.Tensor",
        "aten.mul_.Tensor",
        "aten.rms_norm.default",
        "aten.roll.default",
        "aten.silu.default",
        "warmgraph.paged_attention.default",
        "warmgraph.store_kv.default",
    }
)
"""Small, since under inference mode a step is recorded in the operations it was written in."""


def resolve(name: str) -> Any:
    """The operation of a name such as `aten.mm.default`. Raises KeyError if it is not allowed."""
    if name not in OPERATIONS:
        raise KeyError(name)
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def name_of(operation: Any) -> str:
    """The inverse of resolve."""
    return str(operation)


__all__ = ["OPERATIONS", "VIEWS", "_kernels", "name_of", "resolve"]
