"""A step's way into pinned memory: the static buffers of every backend, and its draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda.layout import DRAW_FIELDS
from warmgraph_engine.buffers import StaticBuffers
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Step

NO_DRAW = (-1.0,) + (0.0,) * (DRAW_FIELDS - 1)


class InputBuffers(StaticBuffers):
    """Writes each step into the set of host buffers whose turn it is.

    draws   float64 [7, S]  of each sequence: row of the logits, or -1 if nothing is drawn; slot;
                            scale, top_k, top_p, min_p and random number as in step.StepDraw
    set     int32 [1]       number of the set
    """

    def __init__(
        self,
        sets: Sequence[Mapping[str, NDArray[Any]]],
        claim: Callable[[], int],
        *,
        block_size: int,
    ) -> None:
        """`claim` gives the number of a set once it may be written."""
        super().__init__(sets[0], block_size=block_size)
        self._sets, self._claim = sets, claim
        for number, arrays in enumerate(sets):
            arrays["set"][0] = number

    def fill(self, step: Step, shape: StepShape) -> None:
        self.arrays = self._sets[self._claim()]
        super().fill(step, shape)
        rows = -1
        draws: list[float] = []
        for row in step.rows:
            rows += row.logit_rows
            draw = row.draw
            draws += (
                NO_DRAW
                if draw is None
                else (rows, row.slot, draw.scale, draw.top_k, draw.top_p, draw.min_p, draw.number)
            )
        count = len(step.rows)
        flat = np.fromiter(draws, np.float64, len(draws))
        self.arrays["draws"][:, :count] = flat.reshape(count, DRAW_FIELDS).T
        self.arrays["draws"][0, count : shape.sequences] = -1
