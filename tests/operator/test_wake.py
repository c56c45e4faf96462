"""When passes run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from warmgraph_operator.client import ApiError
from warmgraph_operator.metrics import Metrics
from warmgraph_operator.reconcile import Outcome
from warmgraph_operator.resource import Key
from warmgraph_operator.sweep import untold
from warmgraph_operator.wake import Waker

ONE, TWO = Key("space", "one"), Key("space", "two")


class Passes:
    """A reconciler that only counts, and may be slow, fail, or find something to sample."""

    def __init__(self) -> None:
        self.done: list[Key] = []
        self.passed = asyncio.Event()
        self.forgotten: list[Key] = []
        self.seconds = 1000.0
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def reconcile(self, key: Key) -> Outcome:
        await self.gate.wait()
        self.done.append(key)
        self.passed.set()
        if self.failures:
            self.failures -= 1
            raise ApiError(500, "no")
        return Outcome(seconds=self.seconds)

    def forget(self, key: Key) -> None:
        self.forgotten.append(key)

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.done) < count:
                self.passed.clear()
                await self.passed.wait()


@pytest.fixture
def passes() -> Passes:
    return Passes()


@pytest.fixture
async def waker(passes: Passes) -> AsyncIterator[Waker]:
    made = Waker(passes, Metrics())  # type: ignore[arg-type]
    yield made
    await made.close()


async def test_a_new_resource_is_passed_over_at_once(waker: Waker, passes: Passes) -> None:
    waker.care(ONE)
    await passes.reach(1)


async def test_a_burst_of_events_costs_one_more_pass(waker: Waker, passes: Passes) -> None:
    passes.gate.clear()
    waker.care(ONE)
    await asyncio.sleep(0.05)
    for _ in range(100):
        waker.wake(ONE, cause="event")
    passes.gate.set()
    await passes.reach(2)
    await asyncio.sleep(0.5)
    assert passes.done == [ONE, ONE]


async def test_an_event_during_a_pass_is_not_lost(waker: Waker, passes: Passes) -> None:
    waker.care(ONE)
    await passes.reach(1)
    passes.gate.clear()
    waker.wake(ONE, cause="event")
    await asyncio.sleep(0.3)
    waker.wake(ONE, cause="event")
    passes.gate.set()
    await passes.reach(3)


async def test_time_alone_wakes(waker: Waker, passes: Passes) -> None:
    passes.seconds = 0.05
    waker.care(ONE)
    await passes.reach(4)


async def test_a_failed_pass_is_tried_again(waker: Waker, passes: Passes) -> None:
    passes.failures = 1
    waker.care(ONE)
    await passes.reach(2)


async def test_a_slow_resource_does_not_hold_up_another(waker: Waker, passes: Passes) -> None:
    waker.care(ONE)
    await passes.reach(1)
    waker.care(TWO)
    await passes.reach(2)
    assert passes.done == [ONE, TWO]


async def test_what_is_gone_is_left_alone(waker: Waker, passes: Passes) -> None:
    waker.care(ONE)
    await passes.reach(1)
    waker.forget(ONE)
    waker.wake(ONE, cause="event")
    await asyncio.sleep(0.3)
    assert passes.done == [ONE]
    assert passes.forgotten == [ONE]
    assert waker.told == {}


async def test_events_of_unknown_resources_start_nothing(waker: Waker, passes: Passes) -> None:
    waker.wake(ONE, cause="event")
    await asyncio.sleep(0.1)
    assert passes.done == []


async def test_what_the_watch_told_is_remembered(waker: Waker, passes: Passes) -> None:
    waker.care(ONE)
    waker.tell(TWO, "7")
    assert waker.told == {ONE: "", TWO: "7"}


@pytest.mark.parametrize(
    ("before", "listed", "after", "behind"),
    [
        pytest.param({ONE: "1"}, {ONE: "1"}, {ONE: "1"}, [], id="still"),
        pytest.param({ONE: "1"}, {ONE: "2"}, {ONE: "2"}, [], id="told meanwhile"),
        pytest.param({ONE: "1"}, {ONE: "2"}, {ONE: "3"}, [], id="told of a later one"),
        pytest.param({ONE: "1"}, {ONE: "2"}, {ONE: "1"}, [ONE], id="not told"),
        pytest.param({}, {ONE: "2"}, {ONE: ""}, [ONE], id="not told of a new one"),
        pytest.param({}, {ONE: "2"}, {ONE: "2"}, [], id="told of a new one"),
        pytest.param({ONE: "1"}, {ONE: "2"}, {}, [], id="gone meanwhile"),
    ],
)
def test_a_watch_that_fell_silent_is_noticed(
    before: dict[Key, str], listed: dict[Key, str], after: dict[Key, str], behind: list[Key]
) -> None:
    assert untold(before, listed, after) == behind
