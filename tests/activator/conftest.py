"""The activator in this process, an API server and model pods beside it, all on loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.activator.activated import Activated
from tests.activator.cluster import PODS, RESOURCES, FakeApiServer
from tests.activator.modelpod import ModelPod
from tests.activator.objects import pod, resource


class World(Activated):
    """What a test moves: the API server, the pods, and the callers."""

    def __init__(self, api: FakeApiServer, kubeconfig: str, client: aiohttp.ClientSession) -> None:
        super().__init__(kubeconfig, client)
        self.api = api
        self.pods: dict[str, ModelPod] = {}

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


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    # Nothing here is encrypted, and reading the system's certificates takes longer than a test.
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    api = FakeApiServer()
    await api.start()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True)
    ) as client:
        made = World(api, api.kubeconfig(tmp_path), client)
        yield made
        await made.end()
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
