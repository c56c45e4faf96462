from __future__ import annotations

import numpy as np
import pytest

from tests.engine.sampling.rows import draw, sample, sequence, token
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.params import InvalidParameterError, SamplingParams

ROW = np.array([2.0, 1.9, -1.0, 0.5], dtype=np.float32)


def greedy(**params):
    return token(ROW, temperature=0.0, **params)


def test_presence_counts_a_token_of_the_output_once_and_frequency_each_time():
    assert greedy(output=[0], presence_penalty=0.05) == 0
    assert greedy(output=[0], presence_penalty=0.2) == 1
    assert greedy(output=[0, 0, 0], presence_penalty=0.05) == 0
    assert greedy(output=[0], frequency_penalty=0.05) == 0
    assert greedy(output=[0, 0, 0], frequency_penalty=0.05) == 1


def test_presence_and_frequency_leave_the_prompt_alone():
    assert greedy(prompt=[0, 0, 0], presence_penalty=2.0, frequency_penalty=2.0) == 0


def test_repetition_counts_prompt_and_output_and_pushes_down_on_both_sides_of_zero():
    assert greedy(prompt=[0], repetition_penalty=1.2) == 1
    assert greedy(output=[0], repetition_penalty=1.2) == 1
    assert greedy(prompt=[0], output=[0, 0], repetition_penalty=1.04) == 0, "once, not per use"
    row = np.array([-1.0, -1.1], dtype=np.float32)
    assert token(row, prompt=[0], temperature=0.0, repetition_penalty=1.2) == 1


def test_bias_is_added_and_can_force_or_forbid():
    assert greedy(logit_bias={2: 3.5}) == 2
    assert greedy(logit_bias={0: -0.2}) == 1
    assert greedy(logit_bias={2: 100.0}) == 2


def test_stop_tokens_are_ruled_out_below_the_minimum_length_only():
    stops = {"stop_token_ids": frozenset({0}), "min_tokens": 2}
    assert greedy(output=[3], **stops) == 1
    assert greedy(output=[3, 3], **stops) == 0
    assert greedy(output=[3], logit_bias={0: 100.0}, **stops) == 1


def test_counts_follow_a_growing_output_and_end_with_the_sequence():
    sampler = CpuSampler(vocabulary=4)
    growing = sequence(5, prompt=[2], temperature=0.0, frequency_penalty=1.0)
    drawn = []
    for _ in range(4):
        [chosen] = sampler.sample(ROW[None, :], [draw(0, growing)]).read()
        growing.tokens.append(chosen.token_id)
        drawn.append(chosen.token_id)
    assert drawn == [0, 1, 0, 1]
    sampler.forget(5)
    sampler.forget(5)
    fresh = sequence(5, prompt=[2], temperature=0.0, frequency_penalty=1.0)
    assert sampler.sample(ROW[None, :], [draw(0, fresh)]).read()[0].token_id == 0


def test_logprobs_are_of_the_raw_logits_whatever_the_request_changes():
    settings = {"logprobs": 2, "temperature": 0.0, "output": [0]}
    plain = sample(ROW[None, :], sequence(**settings))[0].logprob
    changed = sample(
        ROW[None, :], sequence(**settings, presence_penalty=2.0, logit_bias={3: 100.0})
    )[0].logprob
    total = np.log(np.exp(ROW.astype(float)).sum())
    assert plain.token_id == 0
    assert plain.logprob == pytest.approx(2.0 - total)
    assert changed.token_id == 3
    assert changed.logprob == pytest.approx(0.5 - total)
    assert changed.top == plain.top
    assert [token for token, _ in plain.top] == [0, 1]


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -5}, "top_k"),
        ({"min_p": -0.1}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"logprobs": 21}, "logprobs"),
        ({"seed": 2**63}, "seed"),
        ({"stop_token_ids": frozenset({4})}, "stop_token_ids"),
        ({"stop_token_ids": frozenset({-1})}, "stop_token_ids"),
        ({"stop_token_ids": frozenset(range(4)), "min_tokens": 1}, "stop_token_ids"),
        ({"logit_bias": {4: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: float("inf")}}, "logit_bias"),
        ({"logit_bias": dict.fromkeys(range(1025), 1.0)}, "logit_bias"),
        ({"min_tokens": 11}, "min_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(params, name):
    with pytest.raises(InvalidParameterError) as info:
        SamplingParams(**({"max_tokens": 10} | params)).validate(vocabulary=4)
    assert info.value.parameter == name
    assert name in str(info.value)
