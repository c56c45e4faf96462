"""Handing one request to one pod, and its answer back, piece by piece.

Both directions stream with backpressure: nothing is collected here. Each request has its own
connection, so that a connection refused or not made says for certain that nothing was sent; a
kept one could end just as it is used, and nobody would know whether the pod had the request.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from warmgraph_activator import headers
from warmgraph_activator.early import EarlyStream
from warmgraph_activator.refusal import Outcome, Refusal

log = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
"""Inside a cluster a connection takes milliseconds; the second try of a lost SYN comes after one
second and shall count."""

ERROR_BYTES = 1 << 20
"""Of a pod's answer that must be told as an event; OpenAI's errors have less than a KiB."""


def _url(host: str, port: int, request: web.BaseRequest) -> URL:
    """The same target at the pod, character by character where the caller sent only a path."""
    target = request.raw_path if request.raw_path.startswith("/") else request.rel_url.raw_path_qs
    if not target.startswith("/"):  # `OPTIONS *`; what follows a port must not become part of it
        target = f"/{target}"
    address = f"[{host}]" if ":" in host else host
    return URL(f"http://{address}:{port}{target}", encoded=True)


class NotSentError(Exception):
    """The pod took no connection: nothing was sent, another try is safe."""


class _LostError(aiohttp.ClientError):
    """The connection broke after it was made."""


async def _once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """aiohttp sends GET, PUT and the like a second time when a connection breaks, also a fresh
    one; it does not for an error that it does not know."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _LostError(str(error) or type(error).__name__) from error


def session() -> aiohttp.ClientSession:
    """For forwarding: any number of connections, none of them kept, nothing decoded or added."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=(_once,),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )


async def forward(
    request: web.BaseRequest,
    *,
    body: bytes | None,
    early: EarlyStream | None,
    client: aiohttp.ClientSession,
    host: str,
    port: int,
) -> web.StreamResponse:
    """Send the request to host:port and pass on the answer. `body` None: as it comes in.

    Raises NotSentError if there was no connection, Refusal if it was lost before an answer.
    """
    url = _url(host, port, request)
    if body is None and request.body_exists:
        data: object = request.content
    else:
        data = body or None
    try:
        answer = await client.request(
            request.method,
            url,
            headers=headers.to_pod(request.headers, peer=request.remote or "unknown"),
            data=data,
            allow_redirects=False,
        )
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NotSentError(str(error)) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Refusal(
            Outcome.POD_CONNECTION_LOST,
            f"the pod's connection was lost before its answer ({error}); "
            "whether it acted on the request is unknown",
        ) from error
    async with answer:
        if early is None or early.response is None:
            return await _pass_on(request, answer)
        return await _continue(early, answer)


async def _pass_on(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(
        status=answer.status, reason=answer.reason, headers=headers.to_caller(answer.headers)
    )
    # The next request of this caller shall go to a pod, not here again.
    response.force_close()
    await response.prepare(request)
    try:
        async for part in _parts(answer):
            await response.write(part)
    except _CutShortError as error:
        # An answer cut short must not look complete.
        log.warning("a pod's answer was cut short: %s", error)
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


async def _continue(early: EarlyStream, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """After heartbeats: a stream goes on as one, anything else is told as one event."""
    response = early.response
    assert response is not None
    if answer.status != 200 or answer.content_type != "text/event-stream":
        return await early.end(_as_event(answer.status, await _first(answer, ERROR_BYTES)))
    try:
        async for part in _parts(answer):
            await response.write(part)
    except _CutShortError as error:
        lost = Refusal(Outcome.POD_CONNECTION_LOST, f"the pod's answer was cut short: {error}")
        return await early.end(lost.event)
    await response.write_eof()
    return response


class _CutShortError(Exception):
    """The pod's connection ended within its answer."""


async def _parts(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The answer's body as it comes. Errors of the caller's side never look like the pod's."""
    try:
        async for part in answer.content.iter_any():
            yield part
    except (aiohttp.ClientError, OSError) as error:
        raise _CutShortError(str(error) or type(error).__name__) from error


async def _first(answer: aiohttp.ClientResponse, count: int) -> bytes:
    """At most `count` bytes of the body; what came of it if it is cut short."""
    body = b""
    try:
        async for part in _parts(answer):
            body += part
            if len(body) >= count:
                break
    except _CutShortError:
        pass
    return body[:count]


def _as_event(status: int, body: bytes) -> bytes:
    try:
        # Once through the decoder, so that it is one line.
        return b"data: " + msgspec.json.encode(msgspec.json.decode(body)) + b"\n\n"
    except msgspec.MsgspecError:
        return Refusal(Outcome.POD_CONNECTION_LOST, f"the pod answered {status}").event
