"""Tables of the rotary position embedding, computed once and kept in the arena."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from warmgraph_engine.models.config import Rope


def inverse_frequencies(rope: Rope, head_dim: int) -> NDArray[np.float32]:
    """Radians per position of each rotated pair, shape (head_dim / 2,)."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    result = (1.0 / np.float32(rope.theta) ** exponents).astype(np.float32)
    if rope.llama3 is None:
        return (result / np.float32(rope.factor)).astype(np.float32)
    # Llama 3.1: wavelengths beyond the original context are stretched by the factor, short ones
    # are kept, and those between change over smoothly.
    low, high, original = rope.llama3
    wavelengths = 2 * math.pi / result
    smooth = (original / wavelengths - low) / (high - low)
    blended = (1 - smooth) * result / rope.factor + smooth * result
    result = np.where(wavelengths > original / low, result / rope.factor, result)
    between = (wavelengths <= original / low) & (wavelengths >= original / high)
    return np.where(between, blended, result).astype(np.float32)


def rope_tables(
    rope: Rope, head_dim: int, positions: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(cos, sin) of shape (positions, head_dim), so that the rotation of x is
    `x * cos + roll(x, head_dim / 2) * sin`: the first half of sin carries the minus sign."""
    angles = np.outer(
        np.arange(positions, dtype=np.float32), inverse_frequencies(rope, head_dim)
    ).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((cos, cos), axis=1), np.concatenate((-sin, sin), axis=1)
