"""A small API server: lists, watches and /scale of the two kinds that the activator looks at.

Keeps objects as plain dictionaries and a log of events. The real one is asked in tests/apiserver.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from warmgraph_api import labels

RESOURCES = labels.PLURAL
PODS = "pods"


class FakeApiServer:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {RESOURCES: {}, PODS: {}}
        self.events: list[tuple[int, str, str, dict[str, Any]]] = []
        self.version = 100
        self.oldest = 0
        """Watches from before this version get 410."""
        self.scale_reads = 0
        self.scale_writes: list[int] = []
        self.fail_scale = 0
        """So many of the next calls of /scale get a 500."""
        self.write_between = 0
        """Before so many of the next writes, somebody else writes the same."""
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._watching: dict[asyncio.Task[Any], str] = {}
        self.port = 0

    # --- for tests

    async def put(self, plural: str, value: dict[str, Any]) -> None:
        name = value["metadata"]["name"]
        kind = "MODIFIED" if name in self.objects[plural] else "ADDED"
        await self._record(plural, kind, value)
        self.objects[plural][name] = value

    async def delete(self, plural: str, name: str) -> None:
        await self._record(plural, "DELETED", self.objects[plural].pop(name))

    async def _record(self, plural: str, kind: str, value: dict[str, Any]) -> None:
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, plural, kind, json.loads(json.dumps(value))))
        async with self._news:
            self._news.notify_all()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get(f"/apis/{labels.API_VERSION}/{RESOURCES}", self._list(RESOURCES))
        app.router.add_get("/api/v1/pods", self._list(PODS))
        scale = f"/apis/{labels.API_VERSION}/namespaces/default/{RESOURCES}/{{name}}/scale"
        app.router.add_get(scale, self._read_scale)
        app.router.add_patch(scale, self._write_scale)
        # Not 0, which aiohttp takes for "no limit".
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site.port

    async def stop(self) -> None:
        for task in self._watching:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, folder: Path) -> str:
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [
                        {"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
                    ],
                    "users": [{"name": "test", "user": {}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                }
            )
        )
        return str(path)

    def watched(self, plural: str) -> bool:
        """Whether somebody has listed the collection and follows it."""
        return plural in self._watching.values()

    # --- what the activator asks

    def _list(self, plural: str) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            if "watch" in request.query:
                return await self._watch(request, plural, int(request.query["resourceVersion"]))
            items = list(self.objects[plural].values())
            return web.json_response(
                {"metadata": {"resourceVersion": str(self.version)}, "items": items}
            )

        return answer

    async def _watch(self, request: web.Request, plural: str, seen: int) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if seen < self.oldest:
            gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
            await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return response
        task = asyncio.current_task()
        assert task is not None
        self._watching[task] = plural
        try:
            while True:
                for version, of, kind, value in self.events:
                    if version > seen:
                        seen = version
                        if of == plural:
                            line = json.dumps({"type": kind, "object": value})
                            await response.write(line.encode() + b"\n")
                async with self._news:
                    if self.version == seen or not self.events or self.events[-1][0] == seen:
                        await self._news.wait()
        finally:
            self._watching.pop(task, None)

    async def _read_scale(self, request: web.Request) -> web.Response:
        self.scale_reads += 1
        refused = self._refused_scale()
        return refused or self._scale(self.objects[RESOURCES][request.match_info["name"]])

    async def _write_scale(self, request: web.Request) -> web.Response:
        refused = self._refused_scale()
        if refused is not None:
            return refused
        body = await request.json()
        value = self.objects[RESOURCES][request.match_info["name"]]
        if self.write_between:
            self.write_between -= 1
            await self._set_replicas(value, body["spec"]["replicas"])
        if body["metadata"]["resourceVersion"] != value["metadata"]["resourceVersion"]:
            conflict = {"kind": "Status", "code": 409, "message": "the object has been modified"}
            return web.json_response(conflict, status=409)
        assert request.query["fieldManager"] == labels.SCALE_FIELD_MANAGER_ACTIVATOR
        await self._set_replicas(value, body["spec"]["replicas"])
        return self._scale(value)

    async def _set_replicas(self, value: dict[str, Any], replicas: int) -> None:
        self.scale_writes.append(replicas)
        value["spec"]["replicas"] = replicas
        value["metadata"]["generation"] += 1
        await self.put(RESOURCES, value)

    def _refused_scale(self) -> web.Response | None:
        if not self.fail_scale:
            return None
        self.fail_scale -= 1
        status = {"kind": "Status", "code": 500, "message": "etcd is not available"}
        return web.json_response(status, status=500)

    @staticmethod
    def _scale(value: dict[str, Any]) -> web.Response:
        return web.json_response(
            {
                "metadata": {"resourceVersion": value["metadata"]["resourceVersion"]},
                "spec": {"replicas": value["spec"]["replicas"]},
            }
        )
