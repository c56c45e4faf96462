"""One view of the activators for everybody."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.operator.builders import CONFIG, pod
from warmgraph_operator.activators import FRESH_SECONDS, STALE_SECONDS, Activators
from warmgraph_operator.client import FORBIDDEN, ApiError
from warmgraph_operator.kinds import Object
from warmgraph_operator.resource import Key

WITH = dataclasses.replace(CONFIG, activator_namespace="system")


@dataclass
class Fakes:
    """The API server's list of activator pods, and the activators themselves."""

    pods: list[Object] = field(default_factory=list)
    held: dict[str, Mapping[tuple[str, str], int] | None] = field(default_factory=dict)
    answering: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    error: ApiError | None = None
    now: float = 100.0
    lists: int = 0

    async def list(self, kind: Any, namespace: str, *, labels: str) -> list[Object]:
        assert (namespace, labels) == ("system", "app.kubernetes.io/component=activator")
        self.lists += 1
        if self.error:
            raise self.error
        return self.pods

    async def queues(self, address: str) -> Mapping[tuple[str, str], int] | None:
        return self.held.get(address, {})

    async def answers_for(self, address: str, port: int) -> tuple[str, str] | None:
        return self.answering.get((address, port))


@pytest.fixture
def fakes() -> Fakes:
    return Fakes([pod("b", podIP="10.0.0.2"), pod("a", podIP="10.0.0.1")])


def activators(fakes: Fakes, config: Any = WITH) -> Activators:
    return Activators(fakes, fakes, config, clock=lambda: fakes.now)  # type: ignore[arg-type]


async def test_only_ready_ones_stand_in(fakes: Fakes) -> None:
    fakes.pods += [
        pod("c", podIP="10.0.0.3", ready=False),
        pod("d", podIP="10.0.0.4", stopping=True),
    ]
    assert (await activators(fakes).view()).addresses == ("10.0.0.1", "10.0.0.2")


async def test_what_all_of_them_hold_is_added_up(fakes: Fakes) -> None:
    fakes.held = {"10.0.0.1": {("a", "b"): 2}, "10.0.0.2": {("a", "b"): 3, ("c", "d"): 1}}
    assert (await activators(fakes).view()).held == {("a", "b"): 5, ("c", "d"): 1}


async def test_one_that_does_not_answer_makes_the_sum_unknown(fakes: Fakes) -> None:
    fakes.held = {"10.0.0.1": {("a", "b"): 2}, "10.0.0.2": None}
    assert (await activators(fakes).view()).held is None


async def test_many_who_ask_cost_one_list(fakes: Fakes) -> None:
    made = activators(fakes)
    await asyncio.gather(*(made.view() for _ in range(20)))
    assert fakes.lists == 1


async def test_nobody_waits_for_a_refresh_while_the_view_is_young(fakes: Fakes) -> None:
    made = activators(fakes)
    await made.view()
    fakes.pods = []
    fakes.now += FRESH_SECONDS
    assert (await made.view()).addresses == ("10.0.0.1", "10.0.0.2")
    await asyncio.sleep(0.05)
    assert (await made.view()).addresses == ()


async def test_an_old_view_is_not_used(fakes: Fakes) -> None:
    made = activators(fakes)
    await made.view()
    fakes.now += STALE_SECONDS
    fakes.error = ApiError(503, "away")
    with pytest.raises(ApiError):
        await made.view()


async def test_without_permission_there_are_none_and_everything_else_goes_on(fakes: Fakes) -> None:
    fakes.error = ApiError(FORBIDDEN, "no")
    assert (await activators(fakes).view()).addresses == ()


async def test_without_configuration_nothing_is_asked(fakes: Fakes) -> None:
    view = await activators(fakes, CONFIG).view()
    assert (view.addresses, view.held, fakes.lists) == ((), {}, 0)


async def test_only_if_all_answer_for_the_deployment_may_its_pods_go(fakes: Fakes) -> None:
    made = activators(fakes)
    tiny, both = Key("space", "tiny"), ("10.0.0.1", "10.0.0.2")
    fakes.answering = {("10.0.0.2", 20000): tiny}
    assert not await made.answer_for(tiny, both, 20000), (
        "the other would refuse every second caller"
    )
    fakes.answering[("10.0.0.1", 20000)] = Key("space", "other")
    assert not await made.answer_for(tiny, both, 20000)
    fakes.answering[("10.0.0.1", 20000)] = tiny
    assert await made.answer_for(tiny, both, 20000)
    assert not await made.answer_for(tiny, both, 20001)
    assert not await made.answer_for(tiny, (), 20000)
