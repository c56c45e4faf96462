"""The activator in this process, an API server and model pods beside it, all on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.activator.cluster import PODS, RESOURCES, FakeApiServer
from tests.activator.modelpod import ModelPod
from tests.activator.objects import pod, resource
from warmgraph_activator.main import run
from warmgraph_activator.settings import Settings

WAIT_SECONDS = 20
"""For things that take milliseconds; two busy cores make them seconds."""


def free_ports(count: int) -> list[int]:
    """Different ones that nobody holds right now, on any address."""
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something to be so. A condition may be a coroutine function."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            value = condition()
            if await value if asyncio.iscoroutine(value) else value:
                return
            await asyncio.sleep(0.01)


class World:
    """What a test moves: the API server, the pods, and the callers."""

    def __init__(self, api: FakeApiServer, kubeconfig: str, client: aiohttp.ClientSession) -> None:
        self.api = api
        self.client = client
        engine, sidecar, self.port, self.other_port, self.admin = free_ports(5)
        self.settings = Settings(
            host="127.0.0.1",
            admin_port=self.admin,
            kubeconfig=kubeconfig,
            engine_port=engine,
            sidecar_port=sidecar,
            settle_seconds=0.3,
            hold_seconds=1.0,
            forward_seconds=20.0,
        )
        self.url = f"http://127.0.0.1:{self.port}"
        self.pods: dict[str, ModelPod] = {}
        self.activator: asyncio.Task[None] | None = None

    # --- the activator

    async def start(self) -> None:
        self.activator = asyncio.create_task(run(self.settings))
        await self.status("/readyz", 200)

    async def admin_status(self, path: str) -> int:
        try:
            async with self.client.get(f"http://127.0.0.1:{self.admin}{path}") as response:
                return response.status
        except aiohttp.ClientConnectionError:
            return 0

    async def status(self, path: str, expected: int) -> None:
        """Wait until the admin port answers with this status."""

        async def so() -> bool:
            assert self.activator is None or not self.activator.done(), self.activator.exception()
            return await self.admin_status(path) == expected

        await until(so)

    async def queues(self) -> dict[str, int]:
        async with self.client.get(f"http://127.0.0.1:{self.admin}/queues") as response:
            return {q["name"]: q["held"] for q in await response.json()}

    async def held(self, count: int) -> None:
        async def so_many() -> bool:
            return (await self.queues()).get("llm") == count

        await until(so_many)

    async def metrics(self) -> str:
        async with self.client.get(f"http://127.0.0.1:{self.admin}/metrics") as response:
            return await response.text()

    # --- the cluster

    async def deployment(self, name: str = "llm", **changes: Any) -> None:
        port = changes.pop("port", self.port)
        await self.api.put(RESOURCES, resource(name, port=port, **changes))

    async def conditions(self, *conditions: dict[str, Any], name: str = "llm") -> None:
        value = self.api.objects[RESOURCES][name]
        value["status"]["conditions"] = list(conditions)
        await self.api.put(RESOURCES, value)

    async def pod(self, name: str, number: int = 2, *, ready: bool = False) -> ModelPod:
        """A pod that exists and has an address; nothing in it runs yet."""
        ip = f"127.0.0.{number}"
        settings = self.settings
        made = ModelPod(
            name, ip, engine_port=settings.engine_port, sidecar_port=settings.sidecar_port
        )
        self.pods[name] = made
        await self.api.put(PODS, pod(name, ip, ready=ready))
        return made

    # --- callers

    async def get(self, path: str = "/v1/models", **options: Any) -> tuple[int, Any]:
        async with self.client.get(self.url + path, **options) as response:
            return response.status, await response.json()

    def asking(self, path: str = "/v1/models", **options: Any) -> asyncio.Task[tuple[int, Any]]:
        return asyncio.create_task(self.get(path, **options))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    api = FakeApiServer()
    await api.start()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True)
    ) as client:
        made = World(api, api.kubeconfig(tmp_path), client)
        yield made
        if made.activator is not None:
            made.activator.cancel()
            await asyncio.gather(made.activator, return_exceptions=True)
        for model in made.pods.values():
            await model.stop()
        await api.stop()


Started = Callable[..., Awaitable[World]]


@pytest.fixture
async def at_zero(world: World) -> Started:
    """A ready activator and one deployment at zero; keyword arguments are its `activation`."""

    async def start(**activation: Any) -> World:
        await world.deployment(**({"timeoutSeconds": 60} | activation))
        await world.start()
        return world

    return start
