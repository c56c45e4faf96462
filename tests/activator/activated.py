"""An activator in this process, and callers of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import aiohttp

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


class Activated:
    """`port` and `other_port` are for deployments. Pods are anywhere in 127.0.0.0/8."""

    def __init__(self, kubeconfig: str, client: aiohttp.ClientSession) -> None:
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
        self.activator: asyncio.Task[None] | None = None

    # --- the activator

    async def start(self) -> None:
        self.activator = asyncio.create_task(run(self.settings))
        await self.status("/readyz", 200)

    async def end(self) -> None:
        """Without ceremony."""
        if self.activator is not None:
            self.activator.cancel()
            await asyncio.gather(self.activator, return_exceptions=True)

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

    # --- callers

    async def get(self, path: str = "/v1/models", **options: Any) -> tuple[int, Any]:
        async with self.client.get(self.url + path, **options) as response:
            return response.status, await response.json()

    def asking(self, path: str = "/v1/models", **options: Any) -> asyncio.Task[tuple[int, Any]]:
        return asyncio.create_task(self.get(path, **options))
