"""The application and how it is run."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from warmgraph_engine.server import info
from warmgraph_engine.server.chat import chat_completions
from warmgraph_engine.server.completions import completions
from warmgraph_engine.server.keys import SERVICE
from warmgraph_engine.server.middleware import answer_errors, count_outcomes
from warmgraph_engine.server.service import Service

RUNNER_OPTIONS: dict[str, Any] = {
    # A client that disconnects ends its handler at once, and so frees its KV blocks.
    "handler_cancellation": True,
    "access_log": None,
    # Whoever stops the process has let requests finish before; what is left then is cut off.
    "shutdown_timeout": 1.0,
}


def create_app(service: Service) -> web.Application:
    """All endpoints. It may listen before the model is loaded, and then answers 503."""
    app = web.Application(
        client_max_size=service.settings.max_body_bytes,
        middlewares=[count_outcomes, answer_errors],
    )
    app[SERVICE] = service
    app.router.add_post("/v1/completions", completions)
    app.router.add_post("/v1/chat/completions", chat_completions)
    app.router.add_get("/v1/models", info.models)
    app.router.add_get("/v1/models/{name:.+}", info.model)
    app.router.add_get("/health", info.health)
    app.router.add_get("/metrics", info.metrics)
    app.router.add_get("/version", info.engine_version)
    app.router.add_post("/tokenize", info.tokenize)
    app.router.add_post("/detokenize", info.detokenize)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    return web.AppRunner(app, **RUNNER_OPTIONS)
