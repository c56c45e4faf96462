"""Asking pods: each model pod's sidecar for its state, each activator for its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

import aiohttp
import msgspec

from warmgraph_api import ports
from warmgraph_api.report import PodState
from warmgraph_operator.kinds import Object

TIMEOUT = aiohttp.ClientTimeout(total=2.0, connect=1.0)
"""Sidecars answer from memory within milliseconds; a pass must not wait for a dead node."""

CONCURRENT_REQUESTS = 64
"""Pods asked at once, over all resources."""

_state = msgspec.json.Decoder(PodState)


class PodReader(Protocol):
    """How the operator learns of pods; tests answer in their place."""

    async def states(self, pods: tuple[Object, ...]) -> Mapping[str, PodState]:
        """State by pod name. Pods that cannot be asked are missing; nothing is raised."""
        ...

    async def queues(self, address: str) -> Mapping[tuple[str, str], int] | None:
        """Requests that one activator holds, by (namespace, name); None if it did not answer."""
        ...

    async def answers_for(self, address: str, port: int) -> tuple[str, str] | None:
        """(namespace, name) of the deployment that an activator stands for on a port."""
        ...


class _Queue(msgspec.Struct):
    namespace: str
    name: str
    held: int


class _Deployment(msgspec.Struct):
    namespace: str
    name: str


class HttpPodReader:
    """PodReader over HTTP, from inside the cluster."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._slots = asyncio.Semaphore(CONCURRENT_REQUESTS)

    async def states(self, pods: tuple[Object, ...]) -> Mapping[str, PodState]:
        names = [pod["metadata"]["name"] for pod in pods]
        states = await asyncio.gather(*(self._state(pod) for pod in pods))
        return {name: state for name, state in zip(names, states, strict=True) if state}

    async def queues(self, address: str) -> Mapping[tuple[str, str], int] | None:
        body = await self._get(address, ports.ACTIVATOR_ADMIN_PORT, "/queues")
        try:
            queues = msgspec.json.decode(body, type=list[_Queue]) if body else None
        except msgspec.DecodeError:
            return None
        return None if queues is None else {(q.namespace, q.name): q.held for q in queues}

    async def answers_for(self, address: str, port: int) -> tuple[str, str] | None:
        body = await self._get(address, port, "/.warmgraph/ready")
        try:
            answer = msgspec.json.decode(body, type=_Deployment) if body else None
        except msgspec.DecodeError:
            return None
        return (answer.namespace, answer.name) if answer else None

    async def _state(self, pod: Object) -> PodState | None:
        status = pod.get("status") or {}
        address = status.get("podIP")
        if not address or (status.get("phase") != "Running" and not _sidecar_runs(status)):
            return None
        body = await self._get(address, ports.SIDECAR_PORT, "/warmup")
        try:
            return _state.decode(body) if body else None
        except msgspec.DecodeError:
            return None

    async def _get(self, address: str, port: int, path: str) -> bytes | None:
        host = f"[{address}]" if ":" in address else address
        try:
            async with (
                self._slots,
                self._session.get(f"http://{host}:{port}{path}", timeout=TIMEOUT) as response,
            ):
                return await response.read() if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def _sidecar_runs(status: Object) -> bool:
    """A pod is Pending until its engine container runs; its native sidecar may run before."""
    entries = status.get("initContainerStatuses") or []
    return any("running" in (entry.get("state") or {}) for entry in entries)
