"""A kernel launch as plain values, and how the steps of a model are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pointer:
    """The start of a region: of the arena, or of the host's static buffers (`host.…`)."""

    region: str


Argument = Pointer | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    kernel: str
    """Module and function in `kernels`, such as `linear.linear`."""
    grid: tuple[int, int, int]
    arguments: Mapping[str, Argument]
    """By the kernel's parameter names: pointers, 32-bit integers, float32. An integer whose name
    ends in `_size` may be compiled for, as far as whether 16 divides it."""
    constants: Mapping[str, int | str]
    """Compile-time parameters."""
    warps: int = 4
    overlaps: bool = True
    """Whether it may become resident while the launch before it still runs. The first kernel
    that relies on the inputs must not: the kernels after it read them early."""
