"""With drafts an output takes fewer steps; nothing else about it may change."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.harness import Engine, running_engine, sequence
from tests.engine.toy import CIRCLE, limits
from warmgraph_api.report import StepKind
from warmgraph_engine.scheduler.sequence import FinishReason
from warmgraph_engine.step import PENDING_TOKEN

REQUESTS = 300
HABIT = 11.0
"""The toy's text then repeats most of the time, and leaves its circle about every tenth token."""


def random_request(number: int):
    """A request with random length, sampling and stops, always the same for the same number."""
    dice = random.Random(number)
    params = {
        "max_tokens": dice.randint(1, 30),
        "temperature": dice.choice([0.0, 0.3, 1.0]),
        "top_p": dice.choice([1.0, 0.9]),
        "top_k": dice.choice([0, 0, 5]),
        "seed": number,
        "stop_token_ids": frozenset(dice.sample(range(64), dice.choice([0, 1, 4]))),
        "logprobs": dice.choice([None, None, 0, 3]),
    }
    if dice.random() < 0.3:
        params |= {  # strong enough that a circle is left because of what it has said before
            "presence_penalty": dice.choice([0.5, 2.0]),
            "frequency_penalty": dice.choice([0.3, 2.0]),
            "repetition_penalty": dice.choice([1.0, 1.3]),
        }
    if dice.random() < 0.2:
        params["logit_bias"] = {dice.randrange(64): 5.0, dice.randrange(64): -100.0}
    if dice.random() < 0.3:
        params["min_tokens"] = params["max_tokens"] // 2
    if dice.random() < 0.2:
        params["prompt_logprobs"] = 2
    return [dice.randrange(64) for _ in range(dice.randint(1, 40))], params


def requests():
    return [(prompt, params) for prompt, params in map(random_request, range(REQUESTS))]


@pytest.fixture(scope="module")
def plain():
    """What each request gets alone, and without drafts."""
    with running_engine(habit=HABIT) as engine:
        return [engine.generate(sequence(prompt, **params))[0] for prompt, params in requests()]


STARVED = limits(blocks=20, max_batch_size=4, max_batch_tokens=7)
ODD = limits(blocks=60, block_size=3, max_batch_size=16, max_batch_tokens=64)


@pytest.mark.parametrize("tokens", [1, 4, 16])
@pytest.mark.parametrize("facts", [STARVED, ODD], ids=["starved of blocks", "odd block size"])
@pytest.mark.parametrize("device", [False, True], ids=["host draws", "device draws"])
def test_300_requests_that_join_and_leave_get_what_each_gets_without_drafts(
    plain, facts, tokens, device
):
    dice = random.Random(1)
    with running_engine(facts, habit=HABIT, run_ahead=device, speculative_tokens=tokens) as engine:
        sequences = []
        for prompt, params in requests():
            sequences.append(sequence(prompt, **params))
            engine.loop.submit([sequences[-1]])
            if dice.random() < 0.1:
                engine.wait([sequences[-1]])
        assert engine.wait(sequences) == plain
        assert engine.loop._scheduler.pool.used == 0
        assert not engine.kept_by_sampler
    drafted = engine.value("spec_decode_draft_tokens_total")
    kept = engine.value("spec_decode_accepted_tokens_total")
    assert 0 < kept < drafted
    steps = engine.executor.steps
    verified = [step for step in steps if step.kind is StepKind.VERIFY]
    assert any(len({len(row.token_ids) for row in step.rows}) > 1 for step in verified), "mixed"
    assert {step.kind for step in steps} == set(StepKind)
    assert max(len(row.token_ids) for step in verified for row in step.rows) == 1 + tokens


PROMPTS = st.lists(st.integers(0, 11), min_size=1, max_size=25)
WISHES = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 40),
        "temperature": st.sampled_from([0.0, 0.5, 1.5]),
        "seed": st.integers(0, 9),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.3]),
        "frequency_penalty": st.sampled_from([0.0, 0.0, 0.5, 2.0]),
        "logit_bias": st.sampled_from([{}, {4: 3.0}]),
        "stop_token_ids": st.sets(st.integers(0, 11), max_size=2).map(frozenset),
        "logprobs": st.sampled_from([None, 1]),
    }
)


@settings(max_examples=120)
@given(
    asked=st.lists(st.tuples(PROMPTS, WISHES), min_size=1, max_size=4),
    habit=st.floats(0.0, 25.0),
    tokens=st.integers(1, 7),
    chunk=st.integers(1, 30),
    blocks=st.integers(17, 60),
    block_size=st.integers(4, 7),
    far_rows=st.sampled_from([None, 0, 2, 9]),
)
def test_any_model_and_any_requests_give_the_same_with_drafts_and_without(
    asked, habit, tokens, chunk, blocks, block_size, far_rows
):
    """A small vocabulary, so that texts repeat by chance too; sometimes too few blocks for all.
    Without `far_rows` the host draws all tokens, else the device, one or two steps ahead."""
    device = {} if far_rows is None else {"run_ahead": True, "far_rows": far_rows}
    facts = limits(
        vocabulary=12,
        blocks=blocks,
        block_size=block_size,
        max_batch_tokens=chunk,
        max_batch_size=3,
    )
    results = []
    for how in ({}, {"speculative_tokens": tokens, **device}):
        with running_engine(facts, habit=habit, **how) as engine:
            results.append(engine.generate(*(sequence(p, **wishes) for p, wishes in asked)))
            assert engine.loop._scheduler.pool.used == 0
            assert engine.faults == []
    assert results[0] == results[1]


@pytest.mark.parametrize("device", [False, True], ids=["host draws", "device draws"])
def test_cancelled_requests_leave_the_others_as_they_are(plain, device):
    dice = random.Random(2)
    doomed = set(dice.sample(range(REQUESTS), REQUESTS // 3))
    how = {"habit": HABIT, "speculative_tokens": 4, "run_ahead": device}
    with running_engine(limits(blocks=40), **how) as engine:
        sequences = []
        for number, (prompt, params) in enumerate(requests()):
            sequences.append(sequence(prompt, **params))
            engine.loop.submit([sequences[-1]])
            if number % 7 == 0:
                engine.loop.cancel([sequences[n] for n in doomed if n <= number])
        engine.loop.cancel([sequences[n] for n in doomed])
        engine.wait(s for number, s in enumerate(sequences) if number not in doomed)
        for number, result in enumerate(plain):
            got = engine.result(sequences[number])
            if number in doomed:
                assert got.tokens == result.tokens[: len(got.tokens)]
            else:
                assert got == result
        assert engine.loop._scheduler.pool.used == 0
        assert engine.kept_by_sampler <= {sequences[n].id for n in doomed}


def test_preemption_does_not_change_a_result():
    prompts = [[number, number + 1] * 5 for number in range(0, 30, 5)]
    wishes = {"max_tokens": 40, "temperature": 1.0, "frequency_penalty": 0.2}
    with running_engine(limits(blocks=400), habit=HABIT) as roomy:
        expected = roomy.generate(
            *(sequence(prompt, seed=i, **wishes) for i, prompt in enumerate(prompts))
        )
    with running_engine(limits(blocks=20), habit=HABIT, speculative_tokens=4) as tight:
        sequences = [sequence(prompt, seed=i, **wishes) for i, prompt in enumerate(prompts)]
        assert tight.generate(*sequences) == expected
    assert sum(s.preemptions for s in sequences) > 0
    assert sequences[0].preemptions == 0, "the first to come must never be preempted"
    assert tight.value("spec_decode_accepted_tokens_total") > 0


CIRCLING = [*range(CIRCLE), 0]
"""With an endless habit the toy goes on 1, 2, 3, …"""


def test_a_stop_token_inside_an_accepted_run_ends_the_output_with_it():
    with running_engine(habit=1000, speculative_tokens=16) as engine:
        [result] = engine.generate(sequence(CIRCLING, max_tokens=40, stop_token_ids=frozenset({4})))
    assert result.ids == [1, 2, 3, 4]
    assert result.finish is FinishReason.STOP
    assert len(engine.executor.steps) == 2
    assert engine.value("spec_decode_draft_tokens_total") == 16
    assert engine.value("spec_decode_accepted_tokens_total") == 3, "what the output got of them"


def test_no_output_is_longer_than_asked_for_however_many_drafts_are_right():
    for length in range(1, 12):
        with running_engine(habit=1000, speculative_tokens=5) as engine:
            [result] = engine.generate(sequence(CIRCLING, max_tokens=length))
        assert result.ids == ([1, 2, 3, 4, 0] * 3)[:length]
        assert result.finish is FinishReason.LENGTH


def test_an_output_may_fill_the_models_length_and_the_cache_to_the_last_position():
    facts = limits(max_model_length=32, blocks=8, block_size=4)
    with running_engine(facts, habit=1000, speculative_tokens=7) as engine:
        [result] = engine.generate(sequence(CIRCLING, max_tokens=26))
    assert len(result.ids) == 26


def test_right_drafts_save_steps():
    with running_engine(habit=1000, speculative_tokens=4) as engine:
        engine.generate(sequence(CIRCLING, max_tokens=41))
    # One prefill, one decode step until two tokens repeat, then five tokens a step.
    assert [step.kind for step in engine.executor.steps[:3]] == [
        StepKind.PREFILL,
        StepKind.VERIFY,
        StepKind.VERIFY,
    ]
    assert len(engine.executor.steps) == 1 + 40 / 5


def test_drafts_are_counted_as_made_and_as_confirmed():
    with running_engine(habit=1000, speculative_tokens=4) as engine:
        engine.generate(sequence(CIRCLING, max_tokens=13))
    # After the first token 5, 5, and then the 2 that are left: one of them drafted.
    assert engine.value("spec_decode_drafts_total") == 3
    assert engine.value("spec_decode_draft_tokens_total") == 4 + 4 + 1
    assert engine.value("spec_decode_accepted_tokens_total") == 4 + 4 + 1


def test_without_speculation_nothing_is_verified():
    with running_engine(habit=1000) as engine:
        engine.generate(sequence(CIRCLING, max_tokens=13))
    assert {step.kind for step in engine.executor.steps} == {StepKind.PREFILL, StepKind.DECODE}
    assert engine.value("spec_decode_drafts_total") == 0


def test_a_text_that_does_not_repeat_runs_ahead_as_it_does_without_speculation():
    with running_engine(run_ahead=True, speculative_tokens=4) as engine:
        [result] = engine.generate(sequence([*range(10)], max_tokens=6))
    pairs = [*pairwise([*range(10), *result.ids])]
    assert len(set(pairs)) == len(pairs), "nothing to draft from"
    pending = [PENDING_TOKEN in row.token_ids for s in engine.executor.steps for row in s.rows]
    assert pending == [False] + [True] * 5
    assert engine.executor.most_ahead == 2


def test_where_a_text_begins_to_repeat_all_is_read_and_drafts_take_over():
    with running_engine(habit=1000, run_ahead=True, speculative_tokens=4) as engine:
        [result] = engine.generate(sequence(CIRCLING, max_tokens=13))
    assert result.ids == [1, 2, 3, 4, 0] * 2 + [1, 2, 3]
    # The first token is still on its way when the second is computed; then 5 a step, and 1.
    kinds = [step.kind for step in engine.executor.steps]
    assert kinds == [StepKind.PREFILL, StepKind.DECODE, *[StepKind.VERIFY] * 2, StepKind.DECODE]
    pending = [PENDING_TOKEN in step.rows[0].token_ids for step in engine.executor.steps]
    assert pending == [False, True, False, False, False]


def test_one_text_that_repeats_holds_back_the_steps_of_all():
    """One step for all: it has drafts of some, so tokens of none may be missing."""
    with running_engine(habit=1000, run_ahead=True, speculative_tokens=4) as engine:
        engine.generate(
            sequence(CIRCLING, max_tokens=40),
            sequence([*range(10, 20)], max_tokens=40, logit_bias=dict.fromkeys(range(5), -1e4)),
        )
    verified = [step for step in engine.executor.steps if step.kind is StepKind.VERIFY]
    assert any(len(step.rows) == 2 for step in verified)
    assert not any(PENDING_TOKEN in row.token_ids for step in verified for row in step.rows)


def test_tokens_of_an_accepted_run_come_in_order_each_as_an_output_of_its_own():
    seen = []
    engine = Engine(habit=1000, speculative_tokens=4)

    def deliver(outputs):
        if outputs:  # the last delivery, of what is left at the end, is empty
            seen.append([output.token.token_id for output in outputs])
        engine.collect(outputs)

    engine.loop.start(deliver)
    engine.generate(sequence(CIRCLING, max_tokens=11, logprobs=2))
    engine.loop.close()
    assert seen == [[1], [2, 3, 4, 0, 1], [2, 3, 4, 0, 1]]
