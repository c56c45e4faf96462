"""Errors in OpenAI's shape, and a count of every generating request by how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from aiohttp import web

from warmgraph_engine.loop import EngineFaultError, OverloadedError
from warmgraph_engine.metrics import Outcome
from warmgraph_engine.server.body import UNREADABLE_BODY
from warmgraph_engine.server.errors import ApiError, as_api_error, bad_request, unavailable
from warmgraph_engine.server.keys import OUTCOME, SERVICE
from warmgraph_engine.tokenizer.errors import PromptError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GENERATING = frozenset({"/v1/completions", "/v1/chat/completions"})


@web.middleware
async def count_outcomes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Of generating requests."""
    if request.path not in GENERATING:
        return await handler(request)
    metrics = request.app[SERVICE].metrics
    began = time.monotonic()
    outcome = Outcome.CANCELLED  # if neither line below is reached, the client went away
    try:
        response = await handler(request)
        outcome = request.get(OUTCOME) or _outcome(response.status)
        return response
    finally:
        metrics.requests.labels(outcome).inc()
        if outcome is Outcome.COMPLETED:
            metrics.request_seconds.observe(time.monotonic() - began)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every failure into an answer, whatever it is."""
    try:
        return await handler(request)
    except (asyncio.CancelledError, ConnectionResetError):
        raise
    except Exception as error:
        answered = _api_error(request, error)
        headers = {}
        if answered.retry_after_seconds is not None:
            headers["Retry-After"] = str(answered.retry_after_seconds)
        if isinstance(error, web.HTTPMethodNotAllowed):
            headers["Allow"] = error.headers["Allow"]
        response = web.Response(
            status=answered.status,
            body=msgspec.json.encode(answered.body()),
            content_type="application/json",
            headers=headers,
        )
        if answered.code == UNREADABLE_BODY:
            response.force_close()
        return response


def _api_error(request: web.Request, error: Exception) -> ApiError:
    settings = request.app[SERVICE].settings
    match error:
        case PromptError():
            answer = bad_request(str(error), code="invalid_prompt")
        case OverloadedError():
            answer = ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"too many requests: {error}",
                kind="rate_limit_error",
                code="overloaded",
                retry_after_seconds=settings.retry_after_seconds,
            )
        case EngineFaultError():
            answer = unavailable(
                f"the engine is not serving: {error}",
                code="engine_fault",
                retry_after_seconds=settings.retry_after_seconds,
            )
        case web.HTTPException():
            answer = _http_error(request, error)
        case _:
            answer = as_api_error(error)
    return answer


def _http_error(request: web.Request, error: web.HTTPException) -> ApiError:
    message, code = error.reason, None
    match error:
        case web.HTTPRequestEntityTooLarge():
            limit = request.app[SERVICE].settings.max_body_bytes
            message, code = f"the body is larger than {limit} bytes", "body_too_large"
        case web.HTTPNotFound():
            message, code = f"there is no {request.path} here", "not_found"
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            message = f"{request.method} {request.path} is not possible; allowed: {allowed}"
            code = "method_not_allowed"
    return ApiError(error.status, message, code=code)


def _outcome(status: int) -> Outcome:
    if status < HTTPStatus.BAD_REQUEST:
        return Outcome.COMPLETED
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Outcome.OVERLOADED
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return Outcome.UNAVAILABLE
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome.INVALID
    return Outcome.FAILED
