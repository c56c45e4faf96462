"""Conversions between the types of weights, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

STORED_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Types that a checkpoint may hold weights in, by their names there."""

STORAGE: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
"""numpy's types for them; it has none of its own for bfloat16."""


def to_dtype(data: memoryview, source: str, target: str) -> NDArray[Any]:
    """Numbers of type `source` (float32, float16, bfloat16) as a flat array of type `target`;
    bfloat16 is given as uint16, which numpy has."""
    if source == target:
        return np.frombuffer(data, dtype=STORAGE[source])
    if source == "bfloat16":
        wide = (np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        wide = np.frombuffer(data, dtype=STORAGE[source]).astype(np.float32)
    return to_bfloat16(wide) if target == "bfloat16" else wide.astype(STORAGE[target])


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to nearest, ties to even, as torch does; the bits, since numpy has no such type."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))
    # A NaN whose low bits are set would round up to infinity.
    quiet = np.uint32(0x7FC00000)
    return (np.where(np.isnan(values), quiet, rounded) >> 16).astype(np.uint16)
