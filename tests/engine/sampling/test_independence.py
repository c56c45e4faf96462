"""What a sequence draws depends on itself alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sampling.rows import draw, sample, sequence
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.randomness import random_key, uniform
from warmgraph_engine.sampling.sampler import BadLogitsError

VOCABULARY = 500
PARAMS = st.fixed_dictionaries(
    {
        "seed": st.integers(-(2**63), 2**63 - 1),
        "temperature": st.sampled_from([0.0, 0.7, 1.0, 2.0]),
        "top_p": st.sampled_from([0.2, 0.9, 1.0]),
        "top_k": st.sampled_from([0, 1, 7]),
        "min_p": st.sampled_from([0.0, 0.2]),
        "presence_penalty": st.sampled_from([0.0, 1.5, -2.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.5]),
        "repetition_penalty": st.sampled_from([1.0, 1.5, 0.5]),
        "logprobs": st.sampled_from([None, 0, 3]),
        "prompt": st.lists(st.integers(0, VOCABULARY - 1), max_size=8),
        "output": st.lists(st.integers(0, VOCABULARY - 1), max_size=8),
    }
)


def logits_of(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, VOCABULARY)).astype(np.float32) * 3


@given(neighbours=st.lists(PARAMS, max_size=6), own=PARAMS, place=st.integers(0, 6))
@settings(deadline=None)
def test_a_row_gets_the_same_token_alone_and_among_neighbours(neighbours, own, place):
    place = min(place, len(neighbours))
    logits = logits_of(len(neighbours) + 1)
    sequences = [sequence(number, **params) for number, params in enumerate(neighbours)]
    sequences.insert(place, sequence(99, **own))
    together = sample(logits, *sequences)[place]
    alone = sample(logits[place : place + 1], sequence(1, **own))[0]
    assert together == alone


def test_sampling_leaves_the_logits_as_they_are():
    logits = logits_of(1)
    logits.flags.writeable = False
    sample(logits, sequence(prompt=[1], output=[2], presence_penalty=1, logit_bias={1: 5.0}))


@given(key=st.tuples(*[st.integers(0, 2**64 - 1)] * 2), position=st.integers(0, 2**31))
def test_a_random_number_is_a_function_of_key_and_position(key, position):
    number = uniform(key, position)
    assert 0 <= number < 1
    assert number == uniform(key, position)
    assert number != uniform(key, position + 1)


def test_seeds_and_choices_have_streams_of_their_own():
    keys = [random_key(seed, choice) for seed in (0, 1, -1, 2**63 - 1) for choice in (0, 1)]
    assert len({uniform(key, 0) for key in keys}) == 8
    assert random_key(None, 0) != random_key(None, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_a_fault(bad):
    logits = logits_of(2)
    logits[1, 7] = bad
    with pytest.raises(BadLogitsError, match="NaN or infinity"):
        sample(logits, sequence(1), sequence(2, temperature=0.0))
    with pytest.raises(BadLogitsError):
        sample(np.full((1, 5), -np.inf, dtype=np.float32), sequence(1))


def test_logits_of_the_wrong_width_are_a_fault():
    one = draw(0, sequence())
    with pytest.raises(BadLogitsError, match="for 499 tokens"):
        CpuSampler(vocabulary=499).sample(logits_of(1), [one])
