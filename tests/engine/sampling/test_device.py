"""What a device's sampler leaves to the step, and what it draws itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.engine.sampling.rows import draw, sequence
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.device import DeviceSampler, SlotScores
from warmgraph_engine.sampling.randomness import uniform
from warmgraph_engine.sampling.sampler import BadLogitsError, Draw
from warmgraph_engine.step import SlotCounts, StepDraw

VOCABULARY = 50
LOGITS = np.random.default_rng(0).normal(size=(3, VOCABULARY)).astype(np.float32)


class Logits:
    """Where the host may look, and what it looked at."""

    def __init__(
        self, tokens: Sequence[int] = (), scores: dict[int, SlotScores] | None = None
    ) -> None:
        self.tokens, self.copied, self._scores = tokens, [], scores or {}

    def drawn(self) -> Sequence[int]:
        return self.tokens

    def scores(self, slot: int, alternatives: int) -> SlotScores:
        assert len(self._scores[slot].best) == alternatives
        return self._scores[slot]

    def on_host(self, rows: Sequence[int]) -> np.ndarray:
        self.copied += rows
        return LOGITS[list(rows)]


@pytest.fixture
def sampler() -> DeviceSampler:
    return DeviceSampler(vocabulary=VOCABULARY)


def test_the_likeliest_token_is_left_to_the_step(sampler: DeviceSampler) -> None:
    assert sampler.in_step(draw(0, sequence(temperature=0.0))) == StepDraw()


def test_a_sampled_token_is_left_to_the_step_with_the_number_of_its_own_stream(
    sampler: DeviceSampler,
) -> None:
    one = sequence(temperature=0.5, top_k=7, top_p=0.9, min_p=0.1, seed=11)
    for position in (0, 1, 63, 64, 65, 200, 3):
        found = sampler.in_step(Draw(0, one, position))
        assert found == StepDraw(
            scale=2.0, top_k=7, top_p=0.9, min_p=0.1, number=uniform(one.random_key, position)
        )


@pytest.mark.parametrize("top_k", [VOCABULARY, 10**400])
def test_a_limit_that_is_none_is_not_sent_to_a_device_that_could_not_hold_it(
    sampler: DeviceSampler, top_k: int
) -> None:
    found = sampler.in_step(draw(0, sequence(temperature=0.5, top_k=top_k)))
    assert found is not None
    assert found.top_k == 0


COUNTS = SlotCounts(prompt=[4], output=[5, 6])


@pytest.mark.parametrize(
    ("params", "kept", "loaded"),
    [
        ({"logprobs": 0}, {"alternatives": 0}, {}),
        ({"logprobs": 20}, {"alternatives": 20}, {}),
        ({"logit_bias": {1: 1.0}}, {"biased": True}, {"bias": {1: 1.0}}),
        ({"presence_penalty": 0.1}, {"presence_penalty": 0.1}, {"counts": COUNTS}),
        ({"frequency_penalty": -0.1}, {"frequency_penalty": -0.1}, {"counts": COUNTS}),
        ({"repetition_penalty": 1.1}, {"repetition_penalty": 1.1}, {"counts": COUNTS}),
        (
            {"min_tokens": 4, "stop_token_ids": frozenset({2}), "logit_bias": {2: 1.0, 3: 1.0}},
            {"biased": True},
            {"bias": {2: -np.inf, 3: 1.0}},
        ),
    ],
    ids=str,
)
def test_what_changes_logits_is_left_to_the_step_and_sent_to_the_slot_once(
    sampler: DeviceSampler, params: dict, kept: dict, loaded: dict
) -> None:
    one = sequence(1, prompt=[4], output=[5, 6], temperature=0.0, **params)
    assert sampler.in_step(Draw(0, one, 2, first=True)) == StepDraw(**kept, **loaded)
    assert sampler.in_step(Draw(0, one, 3, first=False)) == StepDraw(**kept)
    assert sampler.in_step(Draw(0, one, 2, first=True)) == StepDraw(**kept, **loaded), "preempted"


def test_no_more_alternatives_are_asked_for_than_there_are_tokens() -> None:
    found = DeviceSampler(vocabulary=7).in_step(draw(0, sequence(temperature=0.0, logprobs=20)))
    assert found == StepDraw(alternatives=7)


def test_stop_tokens_are_ruled_out_until_the_minimum_length_is_reached(
    sampler: DeviceSampler,
) -> None:
    params: dict = {"min_tokens": 2, "stop_token_ids": frozenset({2}), "temperature": 0.0}
    plain, biased = sequence(1, **params), sequence(2, **params, logit_bias={2: 3.0})
    for one, bias in ((plain, None), (biased, {2: 3.0})):
        found = [sampler.in_step(Draw(0, one, n, first=n == 0)) for n in range(4)]
        below = [StepDraw(biased=True, bias={2: -np.inf}), StepDraw(biased=True)]
        after = [StepDraw(biased=bool(bias), bias=bias), StepDraw(biased=bool(bias))]
        assert found == below + after
    assert sampler.in_step(draw(0, sequence(min_tokens=2, temperature=0.0))) == StepDraw()


def test_drafts_are_judged_here_and_the_slot_is_told_of_them_afterwards(
    sampler: DeviceSampler,
) -> None:
    one = sequence(1, prompt=[4], output=[5, 6], temperature=0.0, presence_penalty=0.1)
    plain = sequence(2, temperature=0.0)
    drafted = Draw(1, one, 2, first=False, beside_drafts=True)
    assert sampler.in_step(drafted) is None
    logits = Logits([0, 30])
    tokens = sampler.sample(logits, [drafted, Draw(2, plain, 0, slot=1)])
    assert not tokens.on_device
    own, other = tokens.read()
    assert logits.copied == [1]
    assert [own] == CpuSampler(vocabulary=VOCABULARY).sample(LOGITS, [draw(1, one)]).read()
    assert (other.token_id, other.logprob) == (30, None)
    found = [sampler.in_step(Draw(0, one, 3, first=False)) for _ in range(2)]
    assert found == [
        StepDraw(presence_penalty=0.1, counts=COUNTS),
        StepDraw(presence_penalty=0.1),
    ]


def test_a_score_is_made_of_what_the_step_wrote_down(sampler: DeviceSampler) -> None:
    one = sequence(1, temperature=0.0, logprobs=2)
    [expected] = CpuSampler(vocabulary=VOCABULARY).sample(LOGITS, [draw(1, one)]).read()
    row = LOGITS[1]
    order = np.argsort(-row)[:2]
    scores = SlotScores(
        logit=float(row.max()),
        largest=float(row.max()),
        mass=float(np.exp(row - row.max()).sum(dtype=np.float64)),
        best=[(int(token), float(row[token])) for token in order],
    )
    tokens = sampler.sample(Logits([0, expected.token_id], {1: scores}), [Draw(1, one, 0, slot=1)])
    assert tokens.on_device
    assert tokens.read() == [expected]


def test_tokens_are_taken_from_their_slots(sampler: DeviceSampler) -> None:
    draws = [Draw(0, sequence(1), 0, slot=2), Draw(1, sequence(2), 0, slot=0)]
    tokens = sampler.sample(Logits([11, 12, 13]), draws)
    assert tokens.on_device
    assert [token.token_id for token in tokens.read()] == [13, 11]


def test_a_step_that_could_not_draw_is_a_fault(sampler: DeviceSampler) -> None:
    tokens = sampler.sample(Logits([4, -1]), [Draw(0, sequence(), 0, slot=1)])
    with pytest.raises(BadLogitsError, match="NaN or infinity"):
        tokens.read()


def test_prompts_are_scored_from_copies_of_the_rows_asked_for(sampler: DeviceSampler) -> None:
    logits = Logits()
    scores = sampler.prompt_logprobs(logits, first_row=1, targets=[3, 4], top=1)
    expected = CpuSampler(vocabulary=VOCABULARY).prompt_logprobs(
        LOGITS, first_row=1, targets=[3, 4], top=1
    )
    assert scores == expected
    assert logits.copied == [1, 2]


def test_nothing_is_kept_of_a_sequence_that_ended(sampler: DeviceSampler) -> None:
    one = sequence(3, temperature=1.0, seed=1)
    sampler.in_step(draw(0, one))
    assert list(sampler._numbers) == [3]
    sampler.forget(3)
    sampler.forget(3)
    assert sampler._numbers == {}
