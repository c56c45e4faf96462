"""The operator as a process: killed, doubled, and cut off."""

from __future__ import annotations

import asyncio
import contextlib
import random

from devcluster.api import Running
from tests.apiserver.operator.world import World
from warmgraph_operator import kinds
from warmgraph_operator.client import connect
from warmgraph_operator.leader import Election


async def test_killed_at_any_moment_it_gets_there_in_the_end(world: World) -> None:
    world.kubelet()
    await world.create("tiny", graphCache={"mode": "Disabled"})
    moments = random.Random(7)
    for number in range(6):
        await world.start()
        await asyncio.sleep(moments.uniform(0.1, 1.5))
        await world.stop()
        await world.edit("tiny", model={"revision": str(number)})
    await world.start()
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    await world.until("tiny", "Progressing", "False", "Stable")
    pods = await world.all(kinds.POD)
    assert len(pods) == 1


async def test_two_operators_at_once_do_not_fight(world: World) -> None:
    first, second = await world.start(), await world.start()
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Progressing", "False", "Stable")
    await world.eventually(world.quiet, "quiet")
    before = world.audit_position()
    await world.passes(first, 3)
    await world.passes(second, 3)
    assert world.writes(before) == []


async def test_one_of_two_with_leader_election_works(world: World, control_plane: Running) -> None:
    working: list[str] = []

    async def work(name: str) -> None:
        working.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            working.remove(name)

    async def stand(name: str) -> None:
        cluster = await connect(kubeconfig=str(control_plane.kubeconfig))
        try:
            await Election(cluster, world.namespace).lead(lambda: work(name))
        finally:
            await cluster.close()

    async def holds(name: str) -> bool:
        return working == [name]

    one = asyncio.create_task(stand("one"))
    await world.eventually(lambda: holds("one"), "the first one works")
    two = asyncio.create_task(stand("two"))
    await asyncio.sleep(5)
    assert working == ["one"]
    one.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await one
    await world.eventually(lambda: holds("two"), "the second one takes over")
    two.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await two
