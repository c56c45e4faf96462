"""A device that draws tokens itself has its next step before the tokens of the last are read."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.harness import Engine, Result, once_closing, running_engine, sequence
from tests.engine.toy import limits
from warmgraph_engine.scheduler.sequence import FinishReason, Sequence
from warmgraph_engine.step import PENDING_TOKEN, Limits, Step

CHANGED = [
    {"logprobs": 0},
    {"logprobs": 5, "temperature": 0.0},
    {"logit_bias": {3: 1.0, 9: -2.0}},
    {"presence_penalty": 0.5},
    {"frequency_penalty": -0.5, "temperature": 0.0},
    {"repetition_penalty": 1.2},
    {"min_tokens": 20, "stop_token_ids": frozenset(range(0, 64, 2)), "logit_bias": {2: 5.0}},
]


def fed(engine: Engine) -> list[int]:
    """Tokens that each decode step ran."""
    return [len(step.rows) for step in engine.executor.steps if step.kind == "decode"]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "top_p": 0.9, "top_k": 9, "seed": 3}])
@pytest.mark.parametrize(("far_rows", "steps"), [(1, 2), (0, 3)])
def test_the_device_always_has_its_next_step_and_of_many_rows_two(params, far_rows, steps):
    with running_engine(run_ahead=True, far_rows=far_rows) as engine:
        engine.generate(sequence([1, 2], max_tokens=20, **params))
        assert engine.executor.most_ahead == steps
        pending = [PENDING_TOKEN in row.token_ids for s in engine.executor.steps for row in s.rows]
        assert pending == [False] + [True] * 19


@pytest.mark.parametrize("params", CHANGED, ids=str)
def test_a_request_that_changes_its_logits_or_wants_them_holds_nobody_up(params):
    def requests():
        return [
            sequence([0] * 5, max_tokens=40),
            sequence([1] * 5, max_tokens=30, **{"temperature": 1.0, "seed": 4, **params}),
            sequence([2] * 5, max_tokens=40, temperature=1.0, seed=1),
        ]

    with running_engine() as plain:
        expected = plain.generate(*requests())
    with running_engine(run_ahead=True) as engine:
        assert engine.generate(*requests()) == expected
        rows = [row for s in engine.executor.steps if s.kind == "decode" for row in s.rows]
    assert all(PENDING_TOKEN in row.token_ids for row in rows)


@pytest.mark.parametrize(("far_rows", "more"), [(1, 1), (0, 2)])
def test_a_sequence_that_stopped_gets_a_step_or_two_more_whose_tokens_are_dropped(far_rows, more):
    with running_engine() as plain:
        [free] = plain.generate(sequence([7, 8], max_tokens=12))
    stop = free.ids[5]
    length = free.ids.index(stop) + 1
    with running_engine(run_ahead=True, far_rows=far_rows) as engine:
        [result] = engine.generate(
            sequence([7, 8], max_tokens=12, stop_token_ids=frozenset({stop}))
        )
        assert result.ids == free.ids[:length]
        assert result.finish is FinishReason.STOP
        engine.generate(sequence([1], max_tokens=1))  # whatever was on its way is over
        assert len(fed(engine)) == length - 1 + more
        assert engine.loop._scheduler.pool.used == 0


def test_no_step_follows_the_last_token_that_a_sequence_may_have():
    """It would be at a position that the block table, or the model, does not have."""
    facts = limits(blocks=4, block_size=4, max_model_length=16)
    with running_engine(facts, run_ahead=True) as engine:
        one = sequence([1] * 6, max_tokens=10)
        [result] = engine.generate(one)
        engine.generate(sequence([1], max_tokens=1))
    assert len(result.tokens) == 10
    last = max(row.start_position for step in engine.executor.steps for row in step.rows)
    assert last == 14, "the sixteenth position's token is drawn and never fed back"


def test_blocks_of_a_stopped_sequence_serve_the_next_one_while_its_last_step_is_on_its_way():
    """One sequence fits at a time, so each newcomer takes the blocks of one whose superfluous step
    the device may still have."""
    facts = limits(blocks=6, block_size=2, max_batch_size=2, max_batch_tokens=4)
    prompts = [[number, number + 1, number + 2] for number in range(20)]
    with running_engine() as plain:
        free = plain.generate(*(sequence(prompt, max_tokens=8) for prompt in prompts))
    stops = [result.ids[3] for result in free]
    with running_engine(facts, run_ahead=True) as engine:
        sequences = [
            sequence(prompt, max_tokens=8, stop_token_ids=frozenset({stop}))
            for prompt, stop in zip(prompts, stops, strict=True)
        ]
        results = engine.generate(*sequences)
    assert [result.ids for result in results] == [
        result.ids[: result.ids.index(stop) + 1] for result, stop in zip(free, stops, strict=True)
    ]


def test_a_cancelled_sequence_gets_nothing_more_and_its_neighbours_what_they_get_alone():
    with running_engine() as plain:
        [expected] = plain.generate(sequence([2], max_tokens=60))
    with running_engine(run_ahead=True) as engine:
        doomed, neighbour = sequence([1], max_tokens=100), sequence([2], max_tokens=60)
        cancelled_at = []

        def cancel(step: Step) -> None:
            if len(engine.executor.steps) == 10:
                engine.loop.cancel([doomed])
                cancelled_at.append(len(engine.result(doomed).tokens))

        engine.executor.before_step = cancel
        engine.loop.submit([doomed, neighbour])
        assert engine.wait([neighbour]) == [expected]
        # The step being read when it was cancelled may still bring a token, no later one does.
        assert len(engine.result(doomed).tokens) <= cancelled_at[0] + 1
        assert engine.result(doomed).finish is None
        assert not engine.kept_by_sampler


def test_a_fault_keeps_the_tokens_of_the_steps_before_it():
    with running_engine() as plain:
        [expected] = plain.generate(sequence([1], max_tokens=20))
    with running_engine(run_ahead=True) as engine:
        engine.executor.fail_at = 5
        [result] = engine.generate(sequence([1], max_tokens=20))
        assert "device lost" in str(result.error)
        assert result.ids == expected.ids[:4]
        assert engine.faults == ["StepError: device lost"]


def test_closing_hands_out_the_tokens_of_all_steps_that_were_handed_over():
    fifth, closing = threading.Event(), threading.Event()
    with running_engine(run_ahead=True, far_rows=0) as engine:

        def hold(_step: Step) -> None:
            if len(engine.executor.steps) == 5:
                fifth.set()
                assert closing.wait(30)

        engine.executor.before_step = hold
        one = sequence([1], max_tokens=100)
        engine.loop.submit([one])
        assert fifth.wait(30)
        once_closing(engine, closing.set)
        engine.loop.close()
        result = engine.result(one)
        assert "shutting down" in str(result.error)
        assert engine.executor.idle, "none is left"
        assert 5 < len(result.tokens) == len(engine.executor.steps) < 100


def test_logits_that_are_no_numbers_end_all_requests_without_a_token_drawn_from_them():
    with running_engine() as plain:
        [expected] = plain.generate(sequence([1], max_tokens=20))
    with running_engine(run_ahead=True) as engine:
        engine.executor.nan_at = 5
        [result] = engine.generate(sequence([1], max_tokens=20))
        assert "NaN or infinity" in str(result.error)
        assert result.ids == expected.ids[:4]
        assert engine.executor.most_ahead == 2, "the next step was on its way"


def test_background_work_does_not_wait_for_requests_to_end():
    offered = threading.Event()
    with running_engine(run_ahead=True) as engine:
        engine.executor.idle_work_due = lambda *, busy: busy
        engine.executor.idle_work = lambda *, busy: busy and offered.set()
        engine.generate(sequence([1], max_tokens=10))
    assert offered.is_set()


def test_tokens_that_are_there_do_not_wait_for_background_work():
    seen = []
    with running_engine(run_ahead=True) as engine:
        one = sequence([1], max_tokens=4)

        def work(*, busy):
            result = engine.result(one)
            seen.append((len(engine.executor.steps), len(result.tokens), bool(result.finish)))
            return False

        engine.executor.idle_work_due = lambda *, busy: True
        engine.executor.idle_work = work
        engine.generate(one)
    working = [(steps, tokens) for steps, tokens, finished in seen if tokens > 0 and not finished]
    assert working == [(1, 1), (2, 2), (3, 3)], "a token for every step handed over"


REQUEST = st.fixed_dictionaries(
    {
        "prompt": st.lists(st.integers(0, 63), min_size=1, max_size=25),
        "max_tokens": st.integers(0, 12),
        "temperature": st.sampled_from([0.0, 0.0, 0.7, 1.5]),
        "top_k": st.sampled_from([0, 0, 5]),
        "top_p": st.sampled_from([1.0, 1.0, 0.8]),
        "min_p": st.sampled_from([0.0, 0.1]),
        "seed": st.integers(0, 99),
        "stop_token_ids": st.frozensets(st.integers(0, 63), max_size=12),
        "min_tokens": st.sampled_from([0, 0, 0, 3]),
        "logprobs": st.sampled_from([None, None, None, 2]),
        "prompt_logprobs": st.sampled_from([None, None, None, 1]),
        "frequency_penalty": st.sampled_from([0.0, 0.0, 0.0, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.0, 1.3]),
        "logit_bias": st.sampled_from([{}, {}, {}, {3: 4.0}]),
    }
)
FACTS = st.sampled_from(
    [
        limits(blocks=10, max_batch_size=3, max_batch_tokens=5),
        limits(blocks=13, block_size=3, max_batch_size=4, max_batch_tokens=7),
        limits(blocks=60, max_batch_size=8, max_batch_tokens=16),
    ]
)


WORKLOAD = st.lists(
    st.tuples(REQUEST, st.integers(0, 25), st.none() | st.integers(1, 40)), min_size=1, max_size=7
)
"""Each request with the turn in which it arrives and the one in which it is cancelled."""


def outcome(
    facts: Limits, workload: list, *, run_ahead: bool, far_rows: int = 0
) -> tuple[Engine, list[Result]]:
    """What each request gets, turn by turn in this thread."""
    engine = Engine(facts, run_ahead=run_ahead, far_rows=far_rows)
    engine.loop._deliver = engine.collect
    sequences = []
    for request, _, _ in workload:
        given = {**request, "min_tokens": min(request["min_tokens"], request["max_tokens"])}
        sequences.append(sequence(given.pop("prompt"), **given))
    cancelled: set[int] = set()

    def ended(one: Sequence) -> bool:
        return one.id in cancelled or engine.result(one).finish is not None

    turn = 0
    while turn <= 40 or not all(map(ended, sequences)):
        for one, (_, arrives, leaves) in zip(sequences, workload, strict=True):
            if arrives == turn:
                engine.loop.submit([one])
            if run_ahead and leaves == turn and arrives < turn:
                cancelled.add(one.id)
                engine.loop.cancel([one])
        engine.loop.wake()
        engine.loop._turn()
        turn += 1
        assert turn < 1000
    for _ in range(2):  # steps on their way
        engine.loop.wake()
        engine.loop._turn()
    results = [engine.result(one) for one in sequences]
    for one, result in zip(sequences, results, strict=True):
        if one.id in cancelled and result.finish is None:
            result.cancelled = True
    return engine, results


@given(facts=FACTS, workload=WORKLOAD, far_rows=st.sampled_from([0, 2, 9]))
@settings(deadline=None, max_examples=200)
def test_whatever_comes_and_goes_a_request_gets_what_it_gets_without_run_ahead(
    facts, workload, far_rows
):
    """One step ahead, two, or as many as the number of its rows says."""
    _, expected = outcome(facts, workload, run_ahead=False)
    engine, results = outcome(facts, workload, run_ahead=True, far_rows=far_rows)
    for result, whole in zip(results, expected, strict=True):
        if result.cancelled:
            assert result.tokens == whole.tokens[: len(result.tokens)]
            count = len(result.prompt_logprobs)
            assert result.prompt_logprobs == whole.prompt_logprobs[:count]
        else:
            assert result == whole
    assert engine.loop._scheduler.pool.used == 0
    assert not engine.kept_by_sampler
    assert engine.executor.idle
