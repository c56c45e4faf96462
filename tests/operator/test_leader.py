"""Leader election, on fake time and a fake API server."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, field

from warmgraph_operator.client import CONFLICT, ApiError
from warmgraph_operator.kinds import Kind, Object
from warmgraph_operator.leader import LEASE_SECONDS, Election


@dataclass
class Leases:
    """One Lease, with the API server's check of versions."""

    lease: Object | None = None
    version: int = 0
    down: bool = False
    raced: list[Object] = field(default_factory=list)
    """Written by somebody else between a read and the next write."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        if self.down:
            raise ApiError(503, "down")
        found = copy.deepcopy(self.lease)
        if self.raced:
            self._store(self.raced.pop())
        return found

    async def create(self, kind: Kind, body: Object) -> Object:
        if self.lease is not None:
            raise ApiError(CONFLICT, "exists")
        return self._store(body)

    async def replace(self, kind: Kind, body: Object) -> Object:
        assert self.lease is not None
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(CONFLICT, "changed")
        return self._store(body)

    def _store(self, body: Object) -> Object:
        self.version += 1
        stored = copy.deepcopy(body)
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.lease = stored
        return stored

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def election(leases: Leases, clock: Clock, identity: str) -> Election:
    return Election(leases, "space", identity=identity, clock=clock)  # type: ignore[arg-type]


async def test_the_first_one_holds_it_and_renews_it() -> None:
    leases, clock = Leases(), Clock()
    one, two = election(leases, clock, "one"), election(leases, clock, "two")
    assert await one._hold()
    for _ in range(20):
        clock.now += 2
        assert await one._hold()
        assert not await two._hold()
    assert leases.holder == "one"


async def test_it_is_taken_once_it_has_not_changed_for_its_duration() -> None:
    leases, clock = Leases(), Clock()
    one, two = election(leases, clock, "one"), election(leases, clock, "two")
    assert await one._hold()
    assert not await two._hold()
    clock.now += LEASE_SECONDS
    assert not await two._hold()
    clock.now += 1
    assert await two._hold()
    assert leases.holder == "two"
    assert not await one._hold()


async def test_a_newcomer_waits_a_whole_duration_whatever_the_lease_says() -> None:
    """Its clock may be another; only what it saw itself counts."""
    leases, clock = Leases(), Clock()
    assert await election(leases, clock, "one")._hold()
    clock.now += 1000
    newcomer = election(leases, clock, "two")
    assert not await newcomer._hold()
    clock.now += LEASE_SECONDS + 1
    assert await newcomer._hold()


async def test_of_two_that_take_it_at_once_one_does() -> None:
    leases, clock = Leases(), Clock()
    one, two = election(leases, clock, "one"), election(leases, clock, "two")
    assert await one._hold()
    assert not await two._hold()
    clock.now += LEASE_SECONDS + 1
    assert leases.lease is not None
    leases.raced.append(leases.lease)
    assert not await two._hold()


async def test_a_released_lease_is_free_at_once() -> None:
    leases, clock = Leases(), Clock()
    one, two = election(leases, clock, "one"), election(leases, clock, "two")
    await one._hold()
    await one._release()
    assert await two._hold()
    await one._release()
    assert leases.holder == "two"


async def test_the_work_is_ended_when_the_lease_is_lost() -> None:
    leases, clock = Leases(), Clock()
    ended: list[bool] = []

    async def work() -> None:
        leases.down = True
        clock.now += 60
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    await election(leases, clock, "one").lead(work)
    assert ended == [True]
