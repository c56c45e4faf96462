"""The operator as a process: killed, doubled, and cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import sys

import aiohttp

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
    await world.alone(await world.pod())


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


async def test_the_program_serves_health_and_ends_when_told(
    world: World, control_plane: Running
) -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "warmgraph_operator",
        "--engine-image=engine:1",
        "--sidecar-image=sidecar:1",
        f"--namespace={world.namespace}",
        "--listen-host=127.0.0.1",
        f"--port={port}",
        env={**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            await world.eventually(lambda: answers(session, "/readyz"), "ready")
            await world.create("tiny")
            await world.have(kinds.DEPLOYMENT, "tiny")
            assert await answers(session, "/healthz")
            async with session.get("/metrics") as response:
                text = await response.text()
        assert 'warmgraph_operator_writes_total{resource="deployments",verb="apply"} 1.0' in text
    finally:
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert all(json.loads(line)["level"] == "info" for line in errors.splitlines()), errors


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


async def answers(session: aiohttp.ClientSession, path: str) -> bool:
    try:
        async with session.get(path) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False
