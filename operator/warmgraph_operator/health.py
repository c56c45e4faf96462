"""Health and metrics over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from warmgraph_operator.metrics import Metrics


def application(
    metrics: Metrics, *, trouble: Callable[[], str], ready: Callable[[], bool]
) -> web.Application:
    """trouble: empty, or why only a restart helps. ready: every resource is looked after."""

    async def healthz(_: web.Request) -> web.Response:
        text = trouble()
        return web.Response(text=text or "ok", status=503 if text else 200)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok" if ready() else "starting", status=200 if ready() else 503)

    async def metricsz(_: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metricsz)
    return app


async def serve(app: web.Application, *, host: str, port: int) -> web.AppRunner:
    """Listens until the runner is cleaned up. Raises OSError where the port is taken."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
