"""A namespace of a real API server with the operator in it; the test plays kubelet, sidecars and
activators."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmgraph_api import labels
from warmgraph_api.report import (
    Bucket,
    BucketMode,
    BucketState,
    Cache,
    CacheResult,
    Check,
    CheckState,
    Load,
    PodState,
    Stage,
    WarmupReport,
)
from warmgraph_operator import kinds
from warmgraph_operator.client import APPLY, MERGE, Cluster, connect
from warmgraph_operator.config import Config
from warmgraph_operator.kinds import Kind, Object
from warmgraph_operator.main import Operator
from warmgraph_operator.metrics import Metrics

NODE = Kind("v1", "Node", "nodes")
NAMESPACE = Kind("v1", "Namespace", "namespaces")

EVENTUALLY_SECONDS = 40.0
"""A controller manager on a busy two-core machine takes seconds, not tens of them."""

Answer = Mapping[tuple[str, str], int]


@dataclass
class Pods:
    """What sidecars and activators would answer."""

    states_by_name: dict[str, PodState] = field(default_factory=dict)
    held: dict[tuple[str, str], int] = field(default_factory=dict)
    activators_answer: bool = True

    async def states(self, pods: tuple[Object, ...]) -> Mapping[str, PodState]:
        names = [pod["metadata"]["name"] for pod in pods]
        return {name: self.states_by_name[name] for name in names if name in self.states_by_name}

    async def queues(self, address: str) -> Answer | None:
        return dict(self.held)

    async def answers_for(self, address: str, port: int) -> tuple[str, str] | None:
        return self.stands_for.get(port) if self.activators_answer else None

    stands_for: dict[int, tuple[str, str]] = field(default_factory=dict)


def warm(*, load: Load | None = None, cache: CacheResult = CacheResult.MISS) -> PodState:
    """What the sidecar of a pod says that is ready with two eager buckets."""
    buckets = [
        Bucket(kind="decode", size=size, mode=BucketMode.EAGER, state=BucketState.CAPTURED)  # type: ignore[arg-type]
        for size in (1, 2)
    ]
    report = WarmupReport(
        boot_id="boot",
        sequence=1,
        progress=9,
        stage=Stage.SERVING,
        started_at=0.0,
        ready_seconds=2.5,
        buckets=buckets,
        cache=Cache(result=cache, key="0123456789ab"),
        check=Check(state=CheckState.PASSED),
        load=load or Load(),
    )
    return PodState(
        ready=True,
        reason="GraphsCaptured",
        message="eager buckets 2/2",
        engine_connected=True,
        ready_at=2e9,
        report=report,
    )


class World:
    """One namespace; `start` runs an operator for it, any number of times."""

    def __init__(self, cluster: Cluster, namespace: str, kubeconfig: Path, audit_log: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.pods = Pods()
        self._kubeconfig = kubeconfig
        self._audit_log = audit_log
        self._running: list[tuple[asyncio.Task[None], Cluster]] = []
        self._kubelets: list[asyncio.Task[None]] = []
        self._address = 0

    # --- the operator

    def config(self, **changes: Any) -> Config:
        settings: dict[str, Any] = {
            "engine_image": "engine:1",
            "sidecar_image": "sidecar:1",
            "namespaces": (self.namespace,),
            "resync_seconds": 3.0,
        }
        return Config(**{**settings, **changes})

    async def start(self, *, kubeconfig: Path | None = None, **changes: Any) -> Operator:
        """kubeconfig: whose permissions it has; the administrator's without one."""
        metrics = Metrics()
        chosen = str(kubeconfig or self._kubeconfig)
        cluster = await connect(kubeconfig=chosen, on_write=metrics.count_write)
        operator = Operator(self.config(**changes), cluster, self.pods, metrics)
        self._running.append((asyncio.create_task(operator.work()), cluster))
        return operator

    async def stop(self) -> None:
        """At once, as a killed process would."""
        for task, cluster in self._running:
            assert not task.done(), f"the operator ended by itself: {task!r}"
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await cluster.close()
        self._running.clear()

    # --- the user

    async def create(self, name: str, **spec: Any) -> Object:
        body = {
            "apiVersion": labels.API_VERSION,
            "kind": labels.KIND,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"model": {"uri": "file:///models/tiny"}, **CACHELESS, **spec},
        }
        return await self.cluster.create(kinds.INFERENCE_DEPLOYMENT, body)

    async def patch(self, kind: Kind, name: str, change: Object, subresource: str = "") -> Object:
        changed: Object = await self.cluster._request(
            "PATCH",
            kind.path(self.namespace if kind is not NODE else None, name, subresource),
            content_type=MERGE,
            body=change,
        )
        return changed

    async def edit(self, name: str, **spec: Any) -> Object:
        return await self.patch(kinds.INFERENCE_DEPLOYMENT, name, {"spec": spec})

    async def post(self, kind: Kind, body: Object) -> Object:
        metadata = {"namespace": self.namespace, **body["metadata"]}
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return await self.cluster.create(kind, {**head, **body, "metadata": metadata})

    async def get(self, kind: Kind, name: str) -> Object | None:
        return await self.cluster.get(kind, self.namespace, name)

    async def have(self, kind: Kind, name: str) -> Object:
        """The object, once it exists."""
        found: Object = await self.eventually(lambda: self.get(kind, name), f"{kind.kind} {name}")
        return found

    async def all(self, kind: Kind) -> list[Object]:
        return await self.cluster.list(kind, self.namespace)

    async def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        """(status, reason, message), as far as it speaks of the spec as it is now."""
        resource = await self.have(kinds.INFERENCE_DEPLOYMENT, name)
        for entry in (resource.get("status") or {}).get("conditions", []):
            current = entry.get("observedGeneration") == resource["metadata"]["generation"]
            if entry["type"] == kind and current:
                return entry["status"], entry["reason"], entry["message"]
        return "", "", ""

    async def until(self, name: str, kind: str, status: str, reason: str = "") -> str:
        """Wait for a condition; its message."""

        async def reached() -> str | None:
            is_status, is_reason, message = await self.condition(name, kind)
            return message if is_status == status and reason in ("", is_reason) else None

        message: str = await self.eventually(reached, f"{kind}={status} {reason}")
        return message

    async def alone(self, pod: Any) -> None:
        """Wait until this is the only pod. A pod that ends is none for the operator, and is seen
        until the kubelet has let it go."""

        async def reached() -> bool:
            pods = await self.all(kinds.POD)
            return [p["metadata"]["uid"] for p in pods] == [pod["metadata"]["uid"]]

        await self.eventually(reached, f"only {pod['metadata']['name']}")

    async def passes(self, operator: Operator, count: int) -> None:
        """Wait for that many more."""
        counter = operator.metrics.passes.labels("success")._value
        enough = counter.get() + count

        async def reached() -> bool:
            return bool(counter.get() >= enough)

        await self.eventually(reached, f"{count} passes")

    async def eventually(
        self,
        check: Callable[[], Awaitable[Any]],
        what: str = "",
        seconds: float = EVENTUALLY_SECONDS,
    ) -> Any:
        """The first answer that is neither None nor False."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            answer = await check()
            if answer is not None and answer is not False:
                return answer
            await asyncio.sleep(0.1)
        resources = await self.all(kinds.INFERENCE_DEPLOYMENT)
        states = json.dumps([entry.get("status") for entry in resources], indent=1)
        raise AssertionError(f"never happened: {what or check}\n{states}")

    # --- the kubelet

    def kubelet(self) -> None:
        """Runs every pod: makes it ready and warm, and lets it go when it is deleted."""
        self._kubelet(starts=True)

    def kubelet_only_removes(self) -> None:
        """Lets deleted pods go, and starts none."""
        self._kubelet(starts=False)

    def _kubelet(self, *, starts: bool) -> None:
        self._kubelets.append(asyncio.create_task(self._tend(starts=starts)))

    async def _tend(self, *, starts: bool) -> None:
        while True:
            with contextlib.suppress(Exception):  # what fails is tried again
                for pod in await self.all(kinds.POD):
                    if pod["metadata"].get("deletionTimestamp"):
                        await self._gone(pod)
                    elif starts and not (pod.get("status") or {}).get("podIP"):
                        await self.run_pod(pod)
            await asyncio.sleep(0.1)

    async def _gone(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        with contextlib.suppress(Exception):
            await self.cluster._request(
                "DELETE", kinds.POD.path(self.namespace, name), body={"gracePeriodSeconds": 0}
            )

    async def run_pod(self, pod: Object, state: PodState | None = None) -> None:
        """Bind it, give it an address, and make it ready."""
        name = pod["metadata"]["name"]
        with contextlib.suppress(Exception):  # the pod may go meanwhile
            if not pod["spec"].get("nodeName"):  # it may be bound, and no more, by an earlier try
                await self.bind(pod)
            self.pods.states_by_name[name] = state or warm()
            await self.pod_status(name, **ready_status(self.address()))

    def address(self) -> str:
        self._address += 1
        return f"10.99.{self._address // 250}.{self._address % 250 + 1}"

    async def bind(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        await self.cluster._request(
            "POST",
            kinds.POD.path(self.namespace, name, "binding"),
            body={
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name},
                "target": {"kind": "Node", "name": "node"},
            },
        )

    async def pod_status(self, name: str, **status: Any) -> None:
        await self.patch(kinds.POD, name, {"status": status}, "status")

    async def pod(self) -> Object:
        """The one pod there is, once there is one."""

        async def only() -> Object | None:
            pods = await self.all(kinds.POD)
            return pods[0] if len(pods) == 1 else None

        found: Object = await self.eventually(only, "one pod")
        return found

    # --- the auditor

    def writes(self, since: int = 0) -> list[str]:
        """Every write to this namespace in the API server's audit log: verb, resource, name,
        subresource, by the operator's field manager."""
        found = []
        for line in self._audit_log.read_text().splitlines()[since:]:
            entry = json.loads(line)
            place = entry.get("objectRef") or {}
            if place.get("namespace") != self.namespace:
                continue
            if f"fieldManager={labels.FIELD_MANAGER}" not in entry["requestURI"]:
                continue
            found.append(
                f"{entry['verb']} {place['resource']}/{place.get('name')}"
                f" {place.get('subresource', '')}".strip()
            )
        return found

    def audit_position(self) -> int:
        return len(self._audit_log.read_text().splitlines())

    async def quiet(self, seconds: float = 2.0) -> bool:
        """Nothing was written for a while."""
        before = self.audit_position()
        await asyncio.sleep(seconds)
        return self.writes(before) == []

    async def close(self) -> None:
        await self.stop()
        for kubelet in self._kubelets:
            kubelet.cancel()
        await asyncio.gather(*self._kubelets, return_exceptions=True)
        for pod in await self.all(kinds.POD):
            await self._gone(pod)
        await self.cluster._request("DELETE", NAMESPACE.path(None, self.namespace))
        await self.cluster.close()


CACHELESS: Object = {"graphCache": {"mode": "Disabled"}}
"""Without a claim, which no one would bind here."""


def ready_status(address: str) -> Object:
    """Status of a pod that runs and is ready."""
    now = "2026-01-01T00:00:00Z"
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
    }


async def open_world(namespace: str, kubeconfig: Path, audit_log: Path) -> World:
    cluster = await connect(kubeconfig=str(kubeconfig))
    await cluster._request(
        "POST",
        NAMESPACE.path(None),
        body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
    )
    await cluster._request(
        "PATCH",
        NODE.path(None, "node"),
        query={"fieldManager": "test", "force": "true"},
        content_type=APPLY,
        body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}},
    )
    world = World(cluster, namespace, kubeconfig, audit_log)
    await world.have(kinds.SERVICE_ACCOUNT, "default")  # before that no pod is admitted
    return world


async def activator(world: World) -> None:
    """An activator pod that is ready, in the namespace of the test."""
    pod = {
        "metadata": {
            "name": "activator",
            "labels": {"app.kubernetes.io/component": "activator"},
        },
        "spec": {"containers": [{"name": "activator", "image": "activator"}]},
    }
    await world.post(kinds.POD, pod)
    await world.pod_status("activator", **ready_status("10.99.7.7"))
