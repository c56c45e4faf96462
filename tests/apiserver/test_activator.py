"""The activator against a real API server, with exactly the permissions its README asks for."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from devcluster import cluster as devcluster
from devcluster import record as records
from devcluster.api import ControlPlane, Running
from devcluster.process import stop
from tests.activator.activated import Activated, until
from tests.activator.modelpod import ModelPod
from warmgraph_api import labels

ROOT = Path(__file__).parents[2]
ACCOUNT = "warmgraph-activator"
CALLERS = 20


@pytest.fixture(scope="module")
def plane() -> Iterator[Running]:
    """One of these tests' own, since they stop it."""
    with ControlPlane(extras=["controller-manager"]) as running:
        running.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        grant(running)
        yield running


def grant(plane: Running) -> None:
    """A service account with the rules that the README names, and no others."""
    readme = (ROOT / "activator" / "README.md").read_text()
    block = re.search(r"```yaml\n(rules:.*?)```", readme, re.DOTALL)
    assert block is not None
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ACCOUNT},
        "rules": yaml.safe_load(block[1])["rules"],
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    plane.kubectl("create", "serviceaccount", ACCOUNT)
    plane.kubectl(
        *["create", "clusterrolebinding", ACCOUNT, f"--clusterrole={ACCOUNT}"],
        f"--serviceaccount=default:{ACCOUNT}",
    )


@pytest.fixture(scope="module")
def kubeconfig(plane: Running, tmp_path_factory: pytest.TempPathFactory) -> str:
    """As that service account."""
    value = yaml.safe_load(plane.kubeconfig.read_text())
    token = plane.kubectl("create", "token", ACCOUNT).strip()
    for user in value["users"]:
        user["user"] = {"token": token}
    path = tmp_path_factory.mktemp("activator") / "kubeconfig"
    path.write_text(yaml.safe_dump(value))
    return str(path)


class World(Activated):
    def __init__(self, plane: Running, kubeconfig: str, client: aiohttp.ClientSession) -> None:
        super().__init__(kubeconfig, client)
        self._plane = plane

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return await asyncio.to_thread(self._plane.kubectl, *arguments, stdin=stdin)

    async def deployment(self, name: str, port: int) -> None:
        manifest = {
            "apiVersion": labels.API_VERSION,
            "kind": labels.KIND,
            "metadata": {"name": name},
            "spec": {
                "model": {"uri": "file:///models/tiny"},
                "replicas": 0,
                "scaling": {"minReplicas": 0},
            },
        }
        await self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        await self.status_of(f"infd/{name}", {"activator": {"port": port}})

    async def status_of(self, what: str, status: dict[str, Any]) -> None:
        patch = json.dumps({"status": status})
        await self.kubectl("patch", what, "--subresource=status", "--type=merge", "-p", patch)

    async def pod(self, name: str, of: str, ip: str) -> ModelPod:
        """A pod that a node would have started: no node is here, so the test gives the address."""
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {labels.DEPLOYMENT: of}},
            "spec": {"containers": [{"name": "engine", "image": "engine"}]},
        }
        await self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        await self.status_of(
            f"pod/{name}", {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
        )
        settings = self.settings
        return ModelPod(
            name, ip, engine_port=settings.engine_port, sidecar_port=settings.sidecar_port
        )

    async def replicas(self, name: str) -> str:
        return await self.kubectl("get", "infd", name, "-o", "jsonpath={.spec.replicas}")

    async def answers(self, port: int) -> str | None:
        """The name behind a port, or None where nothing listens."""
        try:
            async with self.client.get(f"http://127.0.0.1:{port}/.warmgraph/ready") as response:
                name: str = (await response.json())["name"]
                return name
        except aiohttp.ClientConnectionError:
            return None


@pytest.fixture
async def world(plane: Running, kubeconfig: str) -> AsyncIterator[World]:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as client:
        made = World(plane, kubeconfig, client)
        yield made
        await made.end()
        await made.kubectl("delete", "infd,pods", "--all", "--force", "--grace-period=0")


def scale_writes(plane: Running, name: str) -> list[dict[str, Any]]:
    """Requests that changed the resource's /scale, from the API server's own log."""
    events = [json.loads(line) for line in plane.audit_log.read_text().splitlines()]
    return [
        event
        for event in events
        if event.get("objectRef", {}).get("subresource") == "scale"
        and event["objectRef"].get("name") == name
        and event["verb"] in {"patch", "update"}
    ]


async def test_twenty_callers_at_zero_cause_one_write(world: World, plane: Running) -> None:
    await world.deployment("llm", world.port)
    await world.start()
    asking = [world.asking(f"/{n}") for n in range(CALLERS)]

    async def awake() -> bool:
        return await world.replicas("llm") == "1"

    await until(awake)
    model = await world.pod("llm-a", "llm", "127.0.0.2")
    await model.start()
    try:
        answers = await asyncio.gather(*asking)
    finally:
        await model.stop()
    assert [status for status, _ in answers] == [200] * CALLERS
    writes = scale_writes(plane, "llm")
    assert [w["responseStatus"]["code"] for w in writes] == [200]
    assert ACCOUNT in writes[0]["user"]["username"]
    managers = json.loads(
        await world.kubectl("get", "infd", "llm", "-o", "json", "--show-managed-fields")
    )["metadata"]["managedFields"]
    assert [m["subresource"] for m in managers if m["manager"] == ACCOUNT] == ["scale"]


async def test_a_port_opens_and_closes_with_the_resource(world: World) -> None:
    await world.start()

    async def answers(name: str | None) -> None:
        async def so() -> bool:
            return await world.answers(world.port) == name

        await until(so)

    await world.deployment("first", world.port)
    await answers("first")
    await world.kubectl("delete", "infd", "first")
    await answers(None)
    await world.deployment("second", world.port)
    await answers("second")


async def test_a_condition_ends_the_waiting(world: World) -> None:
    await world.deployment("llm", world.port)
    await world.start()
    asking = world.asking()

    async def awake() -> bool:
        return await world.replicas("llm") == "1"

    await until(awake)
    generation = int(
        await world.kubectl("get", "infd", "llm", "-o", "jsonpath={.metadata.generation}")
    )
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "ImagePullFailed",
        "message": "no such image",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await world.status_of("infd/llm", {"conditions": [ready]})
    status, body = await asking
    assert status == 503
    assert body["error"]["message"] == "default/llm cannot serve; ImagePullFailed: no such image"


async def test_held_requests_outlive_the_api_server(world: World, plane: Running) -> None:
    await world.deployment("llm", world.port)
    await world.start()
    before = world.asking()
    await world.held(1)
    await asyncio.to_thread(stop_api_server, plane)
    during = world.asking()
    await world.held(2)
    await asyncio.to_thread(repair, plane)
    model = await world.pod("llm-b", "llm", "127.0.0.2")
    await model.start()
    try:
        answers = await asyncio.gather(before, during)
    finally:
        await model.stop()
    assert [status for status, _ in answers] == [200, 200]
    assert await world.replicas("llm") == "1"


def stop_api_server(plane: Running) -> None:
    record = records.load(plane.layout.record)
    assert record is not None
    stop(record.processes["apiserver"].identity)


def repair(plane: Running) -> None:
    record = records.load(plane.layout.record)
    assert record is not None
    devcluster.up(plane.layout, full=False, extras=record.extras, owner=record.owner)
