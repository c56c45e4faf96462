"""What a request gets must not depend on who else is served at the time."""

import random

import pytest

from tests.engine.harness import running_engine, sequence
from tests.engine.requests import random_sequence
from tests.engine.toy import limits, toy_logits_of
from warmgraph_engine.scheduler.sequence import FinishReason
from warmgraph_engine.step import PENDING_TOKEN

REQUESTS = 500


@pytest.fixture(scope="module")
def alone():
    """What each request gets when it is the only one."""
    results = []
    with running_engine() as engine:
        for number in range(REQUESTS):
            results += engine.generate(random_sequence(number))
    return results


STARVED = limits(blocks=24, max_batch_size=4, max_batch_tokens=7)
ODD = limits(blocks=40, block_size=3, max_batch_size=16, max_batch_tokens=64)
READ_AT_ONCE_OR_LATER = pytest.mark.parametrize(
    "run_ahead", [False, True], ids=["read at once", "run ahead"]
)


@READ_AT_ONCE_OR_LATER
@pytest.mark.parametrize("facts", [STARVED, ODD], ids=["starved of blocks", "odd block size"])
def test_500_requests_that_join_and_leave_get_what_each_gets_alone(alone, facts, run_ahead):
    dice = random.Random(1)
    with running_engine(facts, run_ahead=run_ahead) as engine:
        sequences = []
        for number in range(REQUESTS):
            sequences.append(random_sequence(number))
            engine.loop.submit([sequences[-1]])
            if dice.random() < 0.1:
                engine.wait([sequences[-1]])
        results = engine.wait(sequences)
        assert results == alone
        assert engine.loop._scheduler.pool.used == 0
        assert not engine.kept_by_sampler
    assert any(len(step.rows) > 2 for step in engine.executor.steps)
    ahead = [PENDING_TOKEN in row.token_ids for step in engine.executor.steps for row in step.rows]
    assert any(ahead) == run_ahead


@READ_AT_ONCE_OR_LATER
def test_cancelled_requests_leave_the_others_as_they_are(alone, run_ahead):
    dice = random.Random(2)
    doomed = set(dice.sample(range(REQUESTS), REQUESTS // 3))
    with running_engine(limits(blocks=40), run_ahead=run_ahead) as engine:
        sequences = []
        for number in range(REQUESTS):
            sequences.append(random_sequence(number))
            engine.loop.submit([sequences[-1]])
            if number % 7 == 0:
                cancelled = [sequences[other] for other in list(doomed) if other <= number]
                doomed.difference_update(range(number + 1))
                engine.loop.cancel(cancelled)
        engine.loop.cancel([sequences[number] for number in doomed])
        doomed = set(random.Random(2).sample(range(REQUESTS), REQUESTS // 3))
        engine.wait(s for number, s in enumerate(sequences) if number not in doomed)
        for number, result in enumerate(alone):
            got = engine.result(sequences[number])
            if number in doomed:
                assert got.tokens == result.tokens[: len(got.tokens)]
            else:
                assert got == result
        assert engine.loop._scheduler.pool.used == 0


@READ_AT_ONCE_OR_LATER
def test_preemption_does_not_change_a_result(run_ahead):
    prompts = [[number] * 10 for number in range(6)]
    settings = {"max_tokens": 40, "temperature": 1.0, "frequency_penalty": 0.5}
    with running_engine(limits(blocks=400)) as roomy:
        expected = roomy.generate(
            *(sequence(prompt, seed=i, **settings) for i, prompt in enumerate(prompts))
        )
    with running_engine(limits(blocks=20), run_ahead=run_ahead) as tight:
        sequences = [sequence(prompt, seed=i, **settings) for i, prompt in enumerate(prompts)]
        assert tight.generate(*sequences) == expected
    assert sum(s.preemptions for s in sequences) > 0
    assert sequences[0].preemptions == 0, "the first to come must never be preempted"
    value = tight.registry.get_sample_value("warmgraph_preemptions_total")
    assert value == sum(s.preemptions for s in sequences)


def test_greedy_output_follows_the_model_token_by_token():
    with running_engine() as engine:
        [result] = engine.generate(sequence([1, 2, 3], max_tokens=10))
    tokens = [1, 2, 3]
    for token in result.ids:
        assert token == int(toy_logits_of(tokens).argmax())
        tokens.append(token)
    assert result.finish is FinishReason.LENGTH


def test_a_seeded_request_repeats_and_its_choices_differ():
    with running_engine() as engine:
        settings = {"temperature": 1.0, "max_tokens": 20}
        first, other, again = engine.generate(
            sequence([5], seed=7, choice=0, **settings),
            sequence([5], seed=7, choice=1, **settings),
            sequence([5], seed=7, choice=0, **settings),
        )
        assert first == again
        assert first != other


def test_unseeded_requests_differ_even_beside_a_seeded_one():
    with running_engine() as engine:
        settings = {"temperature": 1.0, "max_tokens": 20}
        results = engine.generate(
            sequence([5], **settings), sequence([5], seed=7, **settings), sequence([5], **settings)
        )
        assert len({tuple(result.ids) for result in results}) == 3
