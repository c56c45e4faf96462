"""What a step and its draws look like in the host's buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.engine.cuda.models import llama, settings
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.cuda.inputs import InputBuffers
from warmgraph_engine.backends.cuda.layout import plan_host
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import StepShape, shape_of
from warmgraph_engine.step import PENDING_TOKEN, SlotCounts, Step, StepDraw, StepRow

GARBAGE = 77
DRAW = StepDraw(
    scale=2.0,
    top_k=3,
    top_p=0.5,
    min_p=0.25,
    number=0.125,
    repetition_penalty=1.5,
    presence_penalty=0.5,
    frequency_penalty=-0.5,
    alternatives=2,
    biased=True,
    bias={4: 1.0},
    counts=SlotCounts([1], [2]),
)


class Buffers:
    """Two sets, full of what earlier steps may have left."""

    def __init__(self) -> None:
        layout = plan_host(llama(), settings())
        self.sets = [
            {r.name.partition(".")[2]: np.full(r.shape, GARBAGE, r.dtype) for r in layout}
            for _ in range(2)
        ]
        self.turn = 0
        self.told: list[tuple[Any, ...]] = []
        self.filled = InputBuffers(self.sets, lambda: self.turn, self, block_size=4)

    def set_bias(self, slot: int, bias: Mapping[int, float]) -> None:
        self.told.append((slot, bias))

    def set_counts(self, slot: int, counts: SlotCounts) -> None:
        self.told.append((slot, counts))


@pytest.fixture
def buffers() -> Buffers:
    return Buffers()


def row(token: int, *, slot: int = 0, logits: int = 1, draw: StepDraw | None = None) -> StepRow:
    return StepRow(
        token_ids=[token],
        slot=slot,
        start_position=0,
        block_table=BlockTable([1]),
        logit_rows=logits,
        draw=draw,
    )


def test_a_step_is_written_to_the_set_whose_turn_it_is(buffers: Buffers) -> None:
    for turn in (1, 0):
        buffers.turn = turn
        step = Step(kind=StepKind.DECODE, rows=[row(5 + turn)])
        buffers.filled.fill(step, shape_of(step))
    assert [arrays["input_ids"][0] for arrays in buffers.sets] == [5, 6]
    assert [arrays["set"][0] for arrays in buffers.sets] == [0, 1]


def test_a_token_that_only_the_device_knows_is_written_as_its_slot(buffers: Buffers) -> None:
    rows = [row(9, slot=3), row(PENDING_TOKEN, slot=0), row(PENDING_TOKEN, slot=2)]
    step = Step(kind=StepKind.DECODE, rows=rows)
    buffers.filled.fill(step, shape_of(step))
    assert buffers.sets[0]["input_ids"][:3].tolist() == [9, -1, -3]


def test_each_draw_has_its_last_row_and_its_slot_and_all_others_none(buffers: Buffers) -> None:
    rows = [
        row(1, slot=2, draw=StepDraw()),
        row(2, slot=1, logits=0),
        StepRow(
            token_ids=[3, 4, 5],
            slot=3,
            start_position=0,
            block_table=BlockTable([2]),
            logit_rows=2,
            draw=DRAW,
        ),
    ]
    step = Step(kind=StepKind.PREFILL, rows=rows)
    shape = StepShape(kind=StepKind.PREFILL, tokens=8, sequences=4, logit_rows=4)
    buffers.filled.fill(step, shape)
    draws = buffers.sets[0]["draws"]
    assert draws[:, 0].tolist() == [0, 2, 0, 0, 1, 0, 0, 0, 1, 0, 0, -1]
    assert draws[0, 1] == -1
    assert draws[:, 2].tolist() == [2, 3, 2.0, 3, 0.5, 0.25, 0.125, 1, 1.5, 0.5, -0.5, 2]
    assert draws[0, 3] == -1, "padding draws nothing"
    assert buffers.told == [(3, {4: 1.0}), (3, DRAW.counts)]
