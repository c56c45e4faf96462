"""The endpoints that generate nothing: health, metrics, models, version, tokens."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from warmgraph_api.report import Stage
from warmgraph_engine.server import validation
from warmgraph_engine.server.body import read_body
from warmgraph_engine.server.chat import encode_messages
from warmgraph_engine.server.errors import bad_request
from warmgraph_engine.server.keys import SERVICE
from warmgraph_engine.server.protocol import DetokenizeRequest, TokenizeRequest

_STARTED = int(time.time())


async def health(request: web.Request) -> web.Response:
    """200 only in the stage Serving; in every other one 503 that names it."""
    service = request.app[SERVICE]
    stage, message = service.health()
    serving = stage is Stage.SERVING
    headers = {} if serving else {"Retry-After": str(service.settings.retry_after_seconds)}
    status = HTTPStatus.OK if serving else HTTPStatus.SERVICE_UNAVAILABLE
    return _json({"stage": stage, "message": message}, status=status, headers=headers)


async def metrics(request: web.Request) -> web.Response:
    registry = request.app[SERVICE].metrics.registry
    text = await asyncio.to_thread(generate_latest, registry)
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


async def models(request: web.Request) -> web.Response:
    """A model is listed only while it can be used."""
    service = request.app[SERVICE]
    service.serving()
    return _json({"object": "list", "data": [_model(request)]})


async def model(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    service.serving()
    service.check_model(request.match_info["name"])
    return _json(_model(request))


async def engine_version(_request: web.Request) -> web.Response:
    from importlib.metadata import version  # noqa: PLC0415 (20 ms, for one rare question)

    return _json({"version": version("warmgraph")})


async def tokenize(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    loaded = service.serving()
    body = await read_body(request, TokenizeRequest)
    service.check_model(body.model)
    prompt = body.prompt
    if (prompt is None) == (body.messages is None):
        raise bad_request("give either prompt or messages", param="prompt")
    if prompt is not None:
        tokens = await service.tokenize(
            len(prompt),
            lambda: loaded.text.encode(prompt, add_special_tokens=body.add_special_tokens),
        )
    else:
        messages = validation.messages(body.messages or [])
        tokens = await encode_messages(service, loaded, messages, body.chat_template_kwargs)
    return _json(
        {
            "count": len(tokens),
            "max_model_len": loaded.facts.limits.max_model_length,
            "tokens": tokens,
        }
    )


async def detokenize(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    loaded = service.serving()
    body = await read_body(request, DetokenizeRequest)
    service.check_model(body.model)
    vocabulary = loaded.facts.limits.vocabulary
    for token in body.tokens:
        if not 0 <= token < vocabulary:
            raise bad_request(
                f"tokens: {token} is outside the vocabulary (0 to {vocabulary - 1})", param="tokens"
            )
    prompt = await service.tokenize(
        len(body.tokens), lambda: loaded.text.decode(body.tokens, skip_special_tokens=False)
    )
    return _json({"prompt": prompt})


def _model(request: web.Request) -> dict[str, Any]:
    service = request.app[SERVICE]
    return {
        "id": service.model_name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "warmgraph",
        "max_model_len": service.serving().facts.limits.max_model_length,
    }


def _json(
    content: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(content),
        status=status,
        headers=headers,
        content_type="application/json",
    )
