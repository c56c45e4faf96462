"""The admin port: health, readiness, metrics, queues."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import msgspec
from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from warmgraph_activator.metrics import Metrics
from warmgraph_activator.registry import Registry


def application(
    registry: Registry, metrics: Metrics, *, ready: Callable[[], bool]
) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if ready():
            return web.Response(text="ok\n")
        return web.Response(text="not ready\n", status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def queues(_: web.Request) -> web.Response:
        held = [hold.key._asdict() | {"held": hold.line.held} for hold in registry]
        return web.Response(body=msgspec.json.encode(held), content_type="application/json")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/queues", queues)
    return app
