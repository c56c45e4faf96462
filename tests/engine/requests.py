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


def one_of_each_kind() -> list[Sequence]:
    """Likeliest, sampled, scored, from changed logits, stopped early; for 70 or more tokens."""
    return [
        sequence([1, 2, 3], max_tokens=6),
        sequence([9] * 20, max_tokens=4, temperature=0.9, top_p=0.9, seed=4),
        sequence([7], max_tokens=8, temperature=1.2, top_k=12, min_p=0.01, seed=5),
        sequence([4, 4], max_tokens=5, logprobs=2, temperature=1.0, seed=6),
        sequence([5] * 6, max_tokens=3, prompt_logprobs=1),
        sequence([6, 1], max_tokens=7, frequency_penalty=1.5, presence_penalty=0.5),
        sequence([3, 3], max_tokens=9, stop_token_ids=frozenset(range(0, 70, 3)), min_tokens=2),
        sequence([8], max_tokens=6, logit_bias={5: 30.0, 6: 29.0}, repetition_penalty=9.0),
    ]
