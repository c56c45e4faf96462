"""The sidecar's HTTP face: what the kubelet, the operator and the activator ask."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from warmgraph_sidecar.drain import Drain
from warmgraph_sidecar.pod import Pod
from warmgraph_sidecar.verdict import Answer


def application(pod: Pod, drain: Drain, registry: CollectorRegistry) -> web.Application:
    """Routes of docs/architecture.md, over the given state."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return _answer("ready", pod.readiness())

    async def livez(_: web.Request) -> web.Response:
        return _answer("live", pod.liveness())

    async def warmup(_: web.Request) -> web.Response:
        return _json(pod.state())

    async def run_drain(_: web.Request) -> web.Response:
        return _json(await drain.run())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/livez", livez)
    app.router.add_get("/warmup", warmup)
    # Kubelet hooks can only GET; a HEAD must not drain.
    app.router.add_get("/drain", run_drain, allow_head=False)
    app.router.add_post("/drain", run_drain)
    app.router.add_get("/metrics", metrics)
    return app


def _answer(word: str, answer: Answer) -> web.Response:
    status = HTTPStatus.OK if answer.ok else HTTPStatus.SERVICE_UNAVAILABLE
    body = {word: answer.ok, "reason": answer.reason, "message": answer.message}
    return _json(body, status=status)


def _json(body: object, *, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )
