"""Sequences as a sampler sees them, without a scheduler."""

from __future__ import annotations

from types import SimpleNamespace

from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.sampling.randomness import random_key
from warmgraph_engine.sampling.sampler import Draw, SampledToken


def sequence(number: int = 1, *, prompt=(), output=(), choice: int = 0, **params):
    settings = SamplingParams(**({"max_tokens": 100} | params))
    return SimpleNamespace(
        id=number,
        params=settings,
        random_key=random_key(settings.seed, choice),
        tokens=[*prompt, *output],
        prompt_length=len(prompt),
    )


def draw(row: int, of) -> Draw:
    return Draw(row, of, len(of.tokens) - of.prompt_length)


def sample(logits, *sequences) -> list[SampledToken]:
    """One token for each row, by a sampler that has seen nothing before."""
    sampler = CpuSampler(vocabulary=logits.shape[1])
    draws = [draw(row, each) for row, each in enumerate(sequences)]
    return list(sampler.sample(logits, draws).read())


def token(row, **params) -> int:
    return sample(row[None, :], sequence(**params))[0].token_id
