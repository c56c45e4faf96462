"""The CUDA backend's programs run on the CPU, by Triton's interpreter.

Triton decides when it is imported whether it compiles or interprets, so this needs a process with
TRITON_INTERPRET=1 (test_program.py starts one).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from triton.runtime import interpreter

from warmgraph_engine.backends.cuda.launch import Launch, Pointer

_patch_tensor = interpreter._patch_lang_tensor


def _patch_index_too(tensor: Any, scope: Any) -> None:
    """numpy no longer turns arrays of one element into numbers, as the interpreter asks it to
    when a tensor is a loop's bound."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_index_too


def kernel_of(name: str) -> Any:
    """The kernel that a launch names."""
    module, _, function = name.partition(".")
    package = "warmgraph_engine.backends.cuda.kernels"
    return getattr(importlib.import_module(f"{package}.{module}"), function)


def run(launches: Sequence[Launch], memory: Mapping[str, torch.Tensor]) -> None:
    """Make the launches, one after the other, on tensors by region."""
    for launch in launches:
        kernel = kernel_of(launch.kernel)
        constants: dict[str, Any] = dict(launch.constants)
        if "PDL" in kernel.arg_names:
            constants["PDL"] = 0
        arguments = {
            name: memory[value.region] if isinstance(value, Pointer) else value
            for name, value in launch.arguments.items()
        }
        kernel[launch.grid](**arguments, **constants)
