"""The list beside the watches."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

import msgspec

from tests.operator.builders import infd
from warmgraph_operator.client import ApiError
from warmgraph_operator.resource import InferenceDeployment, Key
from warmgraph_operator.sweep import Sweep

TINY = Key("space", "tiny")


@dataclass
class Lists:
    """An API server's list, and a waker that notes what it was told."""

    items: list[InferenceDeployment] = field(default_factory=list)
    down: bool = False
    told: dict[Key, str] = field(default_factory=dict)
    woken: list[Key] = field(default_factory=list)

    async def everything(self) -> list[InferenceDeployment]:
        if self.down:
            raise ApiError(503, "down")
        return self.items

    def care(self, key: Key) -> None:
        self.told.setdefault(key, "")

    def forget(self, key: Key) -> None:
        self.told.pop(key)

    def wake(self, key: Key, *, cause: str) -> None:
        self.woken.append(key)


@dataclass
class Waker:
    """Gives a copy of what was told, as the operator's does."""

    lists: Lists

    @property
    def told(self) -> dict[Key, str]:
        return dict(self.lists.told)

    def __getattr__(self, name: str) -> object:
        return getattr(self.lists, name)


def at_version(version: str) -> InferenceDeployment:
    resource = infd()
    metadata = msgspec.structs.replace(resource.metadata, resource_version=version)
    return msgspec.structs.replace(resource, metadata=metadata)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def sweep(lists: Lists, clock: Clock | None = None) -> Sweep:
    waker = Waker(lists)
    return Sweep(lists, waker, seconds=0.03, clock=clock or Clock())  # type: ignore[arg-type]


async def test_a_resource_that_no_watch_told_of_is_cared_for() -> None:
    lists = Lists([at_version("1")])
    made = sweep(lists)
    assert not made.swept
    await made.once()
    assert made.swept
    assert TINY in lists.told


async def test_one_that_is_gone_is_forgotten() -> None:
    lists = Lists(told={TINY: "1"})
    await sweep(lists).once()
    assert lists.told == {}


async def test_a_silent_watch_is_trouble_after_two_sweeps_and_its_resources_are_woken() -> None:
    lists = Lists([at_version("5")], told={TINY: "4"})
    made = sweep(lists)
    await made.once()
    assert made.trouble() == ""
    await made.once()
    assert "does not tell" in made.trouble()
    assert lists.woken == [TINY, TINY]
    lists.told[TINY] = "5"
    await made.once()
    assert made.trouble() == ""


async def test_an_api_server_that_is_away_is_not_this_process_s_trouble() -> None:
    clock = Clock()
    lists = Lists([at_version("1")], down=True)
    made = sweep(lists, clock)
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0.2)
    clock.now += 0.01
    assert made.trouble() == ""
    lists.down = False
    await asyncio.sleep(0.2)
    assert made.swept
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def test_a_loop_that_stands_still_is_trouble() -> None:
    clock = Clock()
    made = sweep(Lists(), clock)
    clock.now += 1.0
    assert "no list of resources" in made.trouble()
