"""A step's way into pinned memory: the static buffers of every backend, and its draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda.layout import DRAW_FIELDS
from warmgraph_engine.buffers import StaticBuffers
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import SlotCounts, Step, StepDraw

NO_DRAW = (-1.0,) + (0.0,) * (DRAW_FIELDS - 1)


class SlotRows(Protocol):
    """What the device keeps for each slot (slots.py)."""

    def set_bias(self, slot: int, bias: Mapping[int, float]) -> None: ...
    def set_counts(self, slot: int, counts: SlotCounts) -> None: ...


def draw_fields(row: int, slot: int, draw: StepDraw) -> tuple[float, ...]:
    """A draw from a row of the logits as the kernel reads it."""
    return (
        row,
        slot,
        draw.scale,
        draw.top_k,
        draw.top_p,
        draw.min_p,
        draw.number,
        draw.biased,
        draw.repetition_penalty,
        draw.presence_penalty,
        draw.frequency_penalty,
        -1 if draw.alternatives is None else draw.alternatives,
    )


class InputBuffers(StaticBuffers):
    """Writes each step into the set of host buffers whose turn it is.

    draws   float64 [12, S]  of each sequence: row of the logits, or -1 if nothing is drawn; slot;
                             scale, top_k, top_p, min_p, random number, whether biased,
                             repetition, presence and frequency penalty, and alternatives or -1, as
                             in step.StepDraw
    set     int32 [1]        number of the set
    """

    def __init__(
        self,
        sets: Sequence[Mapping[str, NDArray[Any]]],
        claim: Callable[[], int],
        slot_rows: SlotRows,
        *,
        block_size: int,
    ) -> None:
        """`claim` gives the number of a set once it may be written."""
        super().__init__(sets[0], block_size=block_size)
        self._sets, self._claim, self._slot_rows = sets, claim, slot_rows
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
            if draw is None:
                draws += NO_DRAW
                continue
            if draw.bias is not None:
                self._slot_rows.set_bias(row.slot, draw.bias)
            if draw.counts is not None:
                self._slot_rows.set_counts(row.slot, draw.counts)
            draws += draw_fields(rows, row.slot, draw)
        count = len(step.rows)
        flat = np.fromiter(draws, np.float64, len(draws))
        self.arrays["draws"][:, :count] = flat.reshape(count, DRAW_FIELDS).T
        self.arrays["draws"][0, count : shape.sequences] = -1
