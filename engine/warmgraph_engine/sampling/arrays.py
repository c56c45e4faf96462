"""Types of arrays. numpy.typing is for the type checker alone: it would cost a start 5 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Row: TypeAlias = "npt.NDArray[np.float32]"
"""One value per token of the vocabulary."""

Logits: TypeAlias = "npt.NDArray[np.float32]"
"""Shape (rows, vocabulary)."""

Sums: TypeAlias = "npt.NDArray[np.float64]"
TokenIds: TypeAlias = "npt.NDArray[np.intp]"
