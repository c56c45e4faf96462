"""When two sets of logits count as the same answer."""

from __future__ import annotations

import numpy as np
import pytest

from warmgraph_api.report import StepKind
from warmgraph_engine.canary import context_steps, known_answer_step
from warmgraph_engine.shapes import bucket_shape
from warmgraph_engine.step import Limits
from warmgraph_engine.warmup.check import difference

EXPECTED = np.array([[1.0, 9.0, 3.0], [8.0, -2.0, 7.999]], np.float32)


def test_equal_logits_are_the_same_answer() -> None:
    assert difference(EXPECTED, EXPECTED.copy(), tolerance=1e-3) == ""


def test_rounding_may_break_a_tie_either_way() -> None:
    actual = EXPECTED + np.array([[0, 0, 0], [-0.002, 0, 0.002]], np.float32)
    assert actual[1].argmax() != EXPECTED[1].argmax()
    assert difference(EXPECTED, actual, tolerance=1e-3) == ""


def test_a_logit_beyond_the_bound_is_another_answer() -> None:
    actual = EXPECTED.copy()
    actual[0, 0] += 0.02
    assert "differ" in difference(EXPECTED, actual, tolerance=1e-3)


def test_swapped_rows_are_another_answer() -> None:
    assert difference(EXPECTED, EXPECTED[::-1].copy(), tolerance=5e-2) != ""


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_no_answer(value: float) -> None:
    actual = EXPECTED.copy()
    actual[1, 1] = value
    assert difference(EXPECTED, actual, tolerance=1e-3) == "its logits are not numbers"


@pytest.mark.parametrize("block_size", [2, 3, 4, 16])
@pytest.mark.parametrize("blocks", [1, 3, 100])
@pytest.mark.parametrize("kind", [StepKind.DECODE, StepKind.PREFILL, StepKind.VERIFY])
@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_the_checks_steps_fit_any_engine(
    kind: StepKind, size: int, blocks: int, block_size: int
) -> None:
    limits = Limits(
        vocabulary=50,
        block_size=block_size,
        blocks=blocks,
        max_model_length=64,
        max_batch_size=8,
        max_batch_tokens=9,
    )
    shape = bucket_shape(kind, size, max_batch_size=8, speculative_tokens=3)
    contexts = [*context_steps(limits, tokens=9, sequences=3)]
    for step in [*contexts, known_answer_step(shape, limits)]:
        for row in step.rows:
            assert row.start_position + len(row.token_ids) <= block_size * len(row.block_table)
            assert all(0 < block <= blocks for block in row.block_table)
            assert all(0 <= token < 50 for token in row.token_ids)
            assert row.token_ids
    for step in contexts:
        assert step.tokens <= 9
        assert len(step.rows) <= 3
    step = known_answer_step(shape, limits)
    assert step.tokens <= shape.tokens
    assert len(step.rows) <= shape.sequences


def test_no_step_finds_its_tokens_or_what_it_has_to_write_already_there() -> None:
    """Of any other bucket, and of the steps that write contexts."""
    limits = Limits(
        vocabulary=32000,
        block_size=16,
        blocks=100,
        max_model_length=64,
        max_batch_size=64,
        max_batch_tokens=512,
    )
    steps = [*context_steps(limits, tokens=512, sequences=64)]
    for kind in StepKind:
        for size in (16, 32, 48, 64, 96, 512) if kind is StepKind.PREFILL else range(1, 65):
            shape = bucket_shape(kind, size, max_batch_size=64, speculative_tokens=4)
            steps.append(known_answer_step(shape, limits))
    seen: dict[tuple[int, int], list[int]] = {}
    for step in steps:
        for row in step.rows:
            for position, token in enumerate(row.token_ids, row.start_position):
                seen.setdefault((row.slot, position), []).append(token)
    assert all(len(set(tokens)) == len(tokens) for tokens in seen.values())
