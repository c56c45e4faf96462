"""Reading a request's body before it waits, within the line's bounds."""

from __future__ import annotations

import msgspec
from aiohttp import web

from warmgraph_activator.line import Place


async def invite(request: web.BaseRequest) -> None:
    """Tell a caller that waits for leave to send its body that it may; curl waits for a second,
    some wait for ever."""
    waits = request.headers.get("Expect", "").lower() == "100-continue"
    if waits and not request.content.is_eof() and request.content.total_bytes == 0:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # It is no part of the answer: an error must still be able to begin one.
        request.writer.output_size = 0


async def read(request: web.BaseRequest, place: Place) -> bytes:
    """The whole body. Raises Refusal as soon as it cannot fit."""
    announced = request.content_length
    if announced is not None:
        place.add_bytes(announced)
    await invite(request)
    parts = []
    async for part in request.content.iter_any():
        if announced is None:
            place.add_bytes(len(part))
        parts.append(part)
    return b"".join(parts)


class _Call(msgspec.Struct):
    stream: bool = False


_call_decoder = msgspec.json.Decoder(_Call)


def asks_for_stream(request: web.BaseRequest, body: bytes) -> bool:
    """Whether the caller expects server-sent events, and so understands comments among them."""
    if request.method != "POST" or request.content_type != "application/json":
        return False
    try:
        return _call_decoder.decode(body).stream
    except (msgspec.MsgspecError, RecursionError):  # the engine says what is wrong with it
        return False
