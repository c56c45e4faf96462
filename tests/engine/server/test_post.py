"""Outputs on their way from the engine's thread to the requests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.engine.harness import sequence
from warmgraph_engine.loop import Output
from warmgraph_engine.sampling.sampler import SampledToken
from warmgraph_engine.server.generation import AT_ONCE, EVENT_SECONDS, Post


def outputs(sequences: list[Any], token: int) -> list[Output]:
    return [Output(sequence=each, token=SampledToken(token)) for each in sequences]


async def test_many_are_told_of_several_steps_at_once_and_of_when_each_token_came() -> None:
    post = Post(asyncio.get_running_loop())
    sequences = [sequence([1]) for _ in range(AT_ONCE + 80)]
    box = post.register([SimpleNamespace(sequence=sequences[0])])  # type: ignore[list-item]
    post.deliver(outputs(sequences, 1))
    first = await box.take()
    for token in (2, 3):
        post.deliver(outputs(sequences, token))
        await asyncio.sleep(0.002)  # less than the others wait
    assert 80 * EVENT_SECONDS > 0.005
    later = await box.take()
    assert [output.token for output, _ in (*first, *later)] == list(map(SampledToken, (1, 2, 3)))
    (_, second), (_, third) = later
    assert third - second >= 0.0015


async def test_few_are_told_of_each_token_at_once() -> None:
    loop = asyncio.get_running_loop()
    post = Post(loop)
    sequences = [sequence([1]) for _ in range(AT_ONCE)]
    box = post.register([SimpleNamespace(sequence=sequences[0])])  # type: ignore[list-item]
    for token in (1, 2, 3):
        post.deliver(outputs(sequences, token))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [output.token for output, _ in await box.take()] == [SampledToken(token)]
