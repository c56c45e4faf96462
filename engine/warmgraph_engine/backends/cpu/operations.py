"""The operations that a CPU graph may consist of, and how they are written in a document.

A closed list, for both directions: recording stops at anything that a replay could not repeat (a
value read back to Python, a random number), and a document can name nothing else, whoever wrote
it.

Each stands beside torch's own Python binding of it, which a replay calls: `torch.ops.aten…` would
do the same through a generic path that takes twice as long, and a step is some 500 operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn import functional

from warmgraph_engine.backends.cpu import kernels

ALL_REDUCE = "warmgraph.all_reduce.default"

VIEWS: dict[str, Callable[..., Any]] = {
    "aten.chunk.default": torch.chunk,
    "aten.flatten.using_ints": torch.flatten,
    "aten.select.int": torch.select,
    "aten.slice.Tensor": torch.ops.aten.slice.Tensor,  # has no binding: Python writes x[a:b]
    "aten.split_with_sizes.default": torch.split_with_sizes,
    "aten.t.default": torch.t,
    "aten.unbind.int": torch.unbind,
    "aten.unsqueeze.default": torch.unsqueeze,
    "aten.view.default": torch.Tensor.view,
}
"""Give the same memory another shape: done once, when a graph is loaded, if the memory is the
arena's."""

SEVERAL = frozenset({"aten.chunk.default", "aten.split_with_sizes.default", "aten.unbind.int"})
"""Return a sequence of tensors, also when it is of one."""

OPERATIONS: dict[str, Callable[..., Any]] = VIEWS | {
    "aten.add_.Tensor": torch.Tensor.add_,
    "aten.addcmul_.default": torch.Tensor.addcmul_,
    "aten.addmm_.default": torch.Tensor.addmm_,
    "aten.copy_.default": torch.Tensor.copy_,
    "aten.gelu.default": functional.gelu,
    "aten.index_select.default": torch.index_select,
    "aten.layer_norm.default": torch.layer_norm,
    "aten.linear.default": functional.linear,
    "aten.mm.default": torch.mm,
    "aten.mm.out": torch.mm,
    "aten.mul.Tensor": torch.mul,
    "aten.mul_.Tensor": torch.Tensor.mul_,
    "aten.rms_norm.default": torch.rms_norm,
    "aten.roll.default": torch.roll,
    "aten.silu.default": functional.silu,
    ALL_REDUCE: kernels.all_reduce,
    "warmgraph.paged_attention.default": kernels.paged_attention,
    "warmgraph.store_kv.default": kernels.store_kv,
}
"""Few, since under inference mode a step is recorded in the operations it was written in."""


@cache
def parameters(name: str) -> dict[str, Any]:
    """What an operation takes, in order, as torch's schemas say it. Raises KeyError if it is not
    allowed."""
    if name not in OPERATIONS:
        raise KeyError(name)
    namespace, packet, overload = name.split(".")
    operation = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    return {parameter.name: parameter for parameter in operation._schema.arguments}


def name_of(operation: Any) -> str:
    """How a document writes one of torch's operations: `aten.mm.default`."""
    return str(operation)
