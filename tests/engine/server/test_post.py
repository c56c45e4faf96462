"""Outputs on their way from the engine's thread to the requests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.engine.harness import sequence
from warmgraph_engine.loop import Output
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.sampling.sampler import SampledToken
from warmgraph_engine.server import post
from warmgraph_engine.server.post import AT_ONCE, Mailbox, Post


class Desk:
    """A post on the running loop, and requests of one choice each."""

    def __init__(self, requests: int) -> None:
        self.registry = CollectorRegistry()
        self.post = Post(asyncio.get_running_loop(), EngineMetrics(self.registry))
        self.sequences = [sequence([1]) for _ in range(requests)]
        choices: list[Any] = [SimpleNamespace(sequence=each) for each in self.sequences]
        self.boxes = [self.post.register([choice]) for choice in choices]

    def deliver(self, token: int) -> None:
        """A step that drew this token for each."""
        token_ = SampledToken(token)
        self.post.deliver([Output(sequence=each, token=token_) for each in self.sequences])

    def value(self, name: str) -> float:
        return self.registry.get_sample_value(name) or 0.0


async def tokens(box: Mailbox) -> list[int]:
    [(_, outputs)] = await box.take()
    return [output.token.token_id for output in outputs if output.token is not None]


async def test_many_are_told_of_several_short_steps_at_once_and_each_token_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(post, "EVENT_SECONDS", 0.01)
    monkeypatch.setattr(post, "STEP_SECONDS", 1.0)
    desk = Desk(AT_ONCE + 1)
    desk.deliver(1)
    assert [await tokens(box) for box in desk.boxes] == [[1]] * len(desk.boxes)
    desk.deliver(2)
    assert [await tokens(box) for box in desk.boxes] == [[2]] * len(desk.boxes)
    for token in (3, 4):
        desk.deliver(token)
        await asyncio.sleep(0.002)  # a hundredth of what the others wait
    assert [await tokens(box) for box in desk.boxes] == [[3, 4]] * len(desk.boxes)
    assert desk.value("warmgraph_time_to_first_token_seconds_count") == len(desk.boxes)
    assert desk.value("warmgraph_inter_token_latency_seconds_count") == 3 * len(desk.boxes)
    # The last came 2 ms after the one before it, although they were told together.
    seconds = desk.value("warmgraph_inter_token_latency_seconds_sum")
    assert seconds >= 0.0015 * len(desk.boxes)


async def test_many_are_told_of_each_token_where_steps_are_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(post, "EVENT_SECONDS", 1.0)
    monkeypatch.setattr(post, "STEP_SECONDS", 0.0)
    desk = Desk(AT_ONCE + 1)
    for token in (1, 2, 3):
        desk.deliver(token)
        assert [await tokens(box) for box in desk.boxes] == [[token]] * len(desk.boxes)


async def test_few_are_told_of_each_token_at_once() -> None:
    desk = Desk(AT_ONCE)
    for token in (1, 2, 3):
        desk.deliver(token)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for box in desk.boxes:
            assert await tokens(box) == [token]


async def test_outputs_of_a_request_that_was_given_up_go_nowhere() -> None:
    desk = Desk(2)
    gone: Any = SimpleNamespace(sequence=desk.sequences[0])
    desk.post.unregister([gone])
    desk.deliver(1)
    assert await tokens(desk.boxes[1]) == [1]
    assert desk.value("warmgraph_time_to_first_token_seconds_count") == 1
