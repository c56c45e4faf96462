"""Requests of every kind, made up by number: the same number is always the same request."""

from __future__ import annotations

import random
from typing import Any

from tests.engine.harness import sequence
from warmgraph_engine.scheduler.sequence import Sequence


def random_request(
    number: int, *, vocabulary: int = 64, longest_prompt: int = 40
) -> tuple[list[int], dict[str, Any]]:
    """A prompt and SamplingParams with random length, sampling and stops."""
    dice = random.Random(number)
    params: dict[str, Any] = {
        "max_tokens": dice.randint(1, 14),
        "temperature": dice.choice([0.0, 0.3, 1.0, 2.0]),
        "top_p": dice.choice([1.0, 0.9, 0.3]),
        "top_k": dice.choice([0, 1, 5, 40]),
        "min_p": dice.choice([0.0, 0.1]),
        "seed": number,
        "stop_token_ids": frozenset(
            dice.sample(range(vocabulary), dice.choice([0, 1, vocabulary // 10]))
        ),
        "logprobs": dice.choice([None, None, 0, 3]),
    }
    if dice.random() < 0.3:
        params |= {"presence_penalty": 1.5, "frequency_penalty": -1.0, "repetition_penalty": 1.3}
    if dice.random() < 0.2:
        params["logit_bias"] = {dice.randrange(vocabulary): 5.0, dice.randrange(vocabulary): -100.0}
    if dice.random() < 0.2:
        params["min_tokens"] = params["max_tokens"] // 2
    if dice.random() < 0.2:
        params["prompt_logprobs"] = 2
    # Half of the prompts go in circles, so that drafts are found in them.
    words = vocabulary if dice.random() < 0.5 else 4
    return [dice.randrange(words) for _ in range(dice.randint(1, longest_prompt))], params


def random_sequence(number: int, **limits: int) -> Sequence:
    prompt, params = random_request(number, **limits)
    return sequence(prompt, **params)
