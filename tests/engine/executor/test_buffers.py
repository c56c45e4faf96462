"""What a step looks like in the static buffers, padding included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.checkpoints import decode, prefill
from warmgraph_api.report import StepKind
from warmgraph_engine.buffers import BufferSizes, StaticBuffers
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import bucket_shape, shape_of
from warmgraph_engine.step import Step, StepRow

SIZES = BufferSizes(tokens=16, sequences=8, logit_rows=16, table_width=4, vocabulary=7)
GARBAGE = 77


@pytest.fixture
def buffers() -> StaticBuffers:
    """Buffers full of what an earlier step may have left."""
    arrays = {name: np.full(shape, GARBAGE, dtype) for name, dtype, shape in SIZES.regions()}
    return StaticBuffers(arrays, block_size=4)


def values(buffers: StaticBuffers, name: str, length: int) -> list[Any]:
    array: NDArray[Any] = buffers.arrays[name][:length]
    return list(array.tolist())


def test_decode_padding_is_one_token_in_the_dummy_block(buffers: StaticBuffers) -> None:
    shape = bucket_shape(StepKind.DECODE, 4, max_batch_size=8, speculative_tokens=0)
    buffers.fill(decode((5, 6, [3, 2]), (6, 0, [1])), shape)
    assert values(buffers, "input_ids", 4) == [5, 6, 0, 0]
    assert values(buffers, "positions", 4) == [6, 0, 0, 0]
    slots = values(buffers, "slots", 4)
    assert slots[:2] == [2 * 4 + 2, 1 * 4]
    # In the dummy block, but not where a canary's token lies.
    assert all(1 <= slot < 4 for slot in slots[2:])
    assert values(buffers, "query_starts", 5) == [0, 1, 2, 3, 4]
    assert values(buffers, "context_lengths", 4) == [7, 1, 1, 1]
    assert values(buffers, "block_tables", 4) == [[3, 2, 0, 0], [1, 0, 0, 0], [0] * 4, [0] * 4]
    assert values(buffers, "logit_rows", 4) == [0, 1, 0, 0]
    assert values(buffers, "counts", 3) == [2, 2, 2]


def test_a_prefill_chunk_of_several_sequences(buffers: StaticBuffers) -> None:
    rows = [
        StepRow(
            token_ids=[1, 2, 3], start_position=3, block_table=BlockTable([5, 6]), logit_rows=0
        ),
        StepRow(token_ids=[4, 5], start_position=0, block_table=BlockTable([7]), logit_rows=1),
    ]
    shape = bucket_shape(StepKind.PREFILL, 8, max_batch_size=4, speculative_tokens=0)
    buffers.fill(Step(kind=StepKind.PREFILL, rows=rows), shape)
    assert values(buffers, "input_ids", 8) == [1, 2, 3, 4, 5, 0, 0, 0]
    assert values(buffers, "positions", 8) == [3, 4, 5, 0, 1, 0, 0, 0]
    assert values(buffers, "slots", 5) == [5 * 4 + 3, 6 * 4, 6 * 4 + 1, 7 * 4, 7 * 4 + 1]
    assert all(0 < slot < 4 for slot in values(buffers, "slots", 8)[5:])
    assert values(buffers, "query_starts", 5) == [0, 3, 5, 6, 7]
    assert values(buffers, "context_lengths", 4) == [6, 2, 1, 1]
    assert values(buffers, "logit_rows", 4) == [4, 0, 0, 0]
    assert values(buffers, "counts", 3) == [5, 2, 1]


@pytest.mark.parametrize(
    ("size", "tokens"),
    [(size, tokens) for size in (1, 2, 4, 8, 16) for tokens in (1, 3, 4, 5, 16) if tokens <= size],
)
def test_nothing_of_an_earlier_step_is_left_within_the_shape(
    buffers: StaticBuffers, size: int, tokens: int
) -> None:
    step = prefill(list(range(tokens)), [1, 2, 3, 4], logit_rows=1)
    shape = bucket_shape(StepKind.PREFILL, size, max_batch_size=8, speculative_tokens=0)
    buffers.fill(step, shape)
    for name, length in (
        ("input_ids", shape.tokens),
        ("positions", shape.tokens),
        ("query_starts", shape.sequences + 1),
        ("context_lengths", shape.sequences),
        ("block_tables", shape.sequences),
        ("logit_rows", shape.logit_rows),
        ("counts", 3),
    ):
        assert GARBAGE not in np.asarray(values(buffers, name, length)).ravel()
    starts = values(buffers, "query_starts", shape.sequences + 1)
    assert starts == sorted(starts)
    assert starts[-1] <= shape.tokens
    assert min(values(buffers, "context_lengths", shape.sequences)) >= 1


def test_a_step_without_padding_writes_only_its_own_shape(buffers: StaticBuffers) -> None:
    step = decode((5, 6, [3, 2]))
    buffers.fill(step, shape_of(step))
    assert values(buffers, "input_ids", 2) == [5, GARBAGE]
    assert values(buffers, "context_lengths", 2) == [7, GARBAGE]
