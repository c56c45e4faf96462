"""Which tokens are drawn, and how often."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sampling.rows import sample, sequence, token
from warmgraph_engine.sampling import cpu
from warmgraph_engine.sampling.params import SamplingParams

ROW = np.log(np.array([0.1, 0.4, 0.2, 0.05, 0.25], dtype=np.float32))


def draw_token(row, params, number):
    return cpu.draw_token(row, params, number, scratch=np.empty_like(row))


def frequencies(row, draws=4000, **params):
    """Shares of the tokens over evenly spaced random numbers: exact up to 1/draws."""
    settings = SamplingParams(max_tokens=1, **params)
    counts = Counter(draw_token(row, settings, (i + 0.5) / draws) for i in range(draws))
    return [counts[token] / draws for token in range(row.size)]


def softmax(row):
    weights = np.exp(row.astype(float) - row.max())
    return weights / weights.sum()


def test_greedy_takes_the_likeliest_and_the_first_of_equals():
    assert token(ROW, temperature=0) == 1
    assert token(np.array([1, 3, 3, 0], dtype=np.float32), temperature=0) == 1


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.05, 0.25]),
        ({"top_k": 2}, [0, 0.4 / 0.65, 0, 0, 0.25 / 0.65]),
        ({"top_k": 1}, [0, 1, 0, 0, 0]),
        ({"top_p": 0.6}, [0, 0.4 / 0.65, 0, 0, 0.25 / 0.65]),
        ({"top_p": 0.66}, [0, 0.4 / 0.85, 0.2 / 0.85, 0, 0.25 / 0.85]),
        ({"top_p": 1e-9}, [0, 1, 0, 0, 0]),
        ({"min_p": 0.3}, [0, 0.4 / 0.85, 0.2 / 0.85, 0, 0.25 / 0.85]),
        ({"min_p": 1.0}, [0, 1, 0, 0, 0]),
        # top_k first, then top_p of what it left: 0.4 / 0.85 = 0.47, with 0.25: 0.76
        ({"top_k": 3, "top_p": 0.75}, [0, 0.4 / 0.65, 0, 0, 0.25 / 0.65]),
        ({"top_k": 3, "min_p": 0.6}, [0, 0.4 / 0.65, 0, 0, 0.25 / 0.65]),
        ({"top_p": 0.6, "min_p": 0.3}, [0, 0.4 / 0.65, 0, 0, 0.25 / 0.65]),
        ({"temperature": 1e-5}, [0, 1, 0, 0, 0]),
    ],
)
def test_shares_are_those_of_the_truncated_distribution(params, expected):
    assert frequencies(ROW, **params) == pytest.approx(expected, abs=1e-3)


def test_temperature_flattens_and_sharpens():
    hot, cold = (softmax(ROW / t) for t in (2.0, 0.5))
    assert frequencies(ROW, temperature=2.0) == pytest.approx(hot, abs=1e-3)
    assert frequencies(ROW, temperature=0.5) == pytest.approx(cold, abs=1e-3)


@given(
    row=st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=300),
    top_k=st.integers(0, 30),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
    number=st.floats(0, 1, exclude_max=True),
)
@settings(deadline=None, max_examples=150)
def test_a_token_outside_the_truncation_is_never_drawn(row, top_k, top_p, min_p, number):
    row = np.array(row, dtype=np.float32)
    params = SamplingParams(max_tokens=1, top_k=top_k, top_p=top_p, min_p=min_p)
    drawn = draw_token(row, params, number)
    # What float32 cannot tell apart is equally likely: 1e-38 and 0 are, beside a logit of 0.5.
    relative = row - row.max()
    weights = np.exp(relative).astype(float)
    larger = np.count_nonzero(relative > relative[drawn])
    assert top_k == 0 or larger < top_k
    assert weights[drawn] >= min_p - 1e-6
    kept = np.where(weights >= min_p - 1e-6, weights, 0)
    if top_k:
        kept = np.sort(kept)[::-1][:top_k]
    if top_p < 1:
        assert weights[weights > weights[drawn]].sum() <= top_p * kept.sum() * (1 + 1e-5) + 1e-6


def test_a_flat_distribution_wider_than_the_first_guess_keeps_its_nucleus():
    row = np.zeros(1500, dtype=np.float32)
    shares = frequencies(row, draws=1500, top_p=0.5)
    assert sum(share > 0 for share in shares) == 750


@pytest.mark.parametrize("number", [0.0, math.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("params", [{}, {"top_k": 4}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_the_edges_of_the_random_number_draw_possible_tokens(number, params):
    row = np.full(1000, -200, dtype=np.float32)
    row[[3, 700]] = 0
    assert draw_token(row, SamplingParams(max_tokens=1, **params), number) in {3, 700}


def test_drawing_follows_the_distribution_over_many_seeds():
    counts = Counter(token(ROW, seed=seed) for seed in range(4000))
    expected = softmax(ROW)
    for index, share in enumerate(expected):
        # Five standard deviations; the seeds are fixed, so this passes always or never.
        assert abs(counts[index] / 4000 - share) < 5 * math.sqrt(share * (1 - share) / 4000)


def test_an_unused_end_of_the_vocabulary_is_never_drawn():
    row = np.concatenate([ROW, np.full(3, -np.inf, dtype=np.float32)])
    assert frequencies(row)[5:] == [0, 0, 0]
    assert sample(row[None, :], sequence(temperature=0, logprobs=7))[0].logprob.top[-1][1] == -9999
