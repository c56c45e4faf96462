"""Server-sent events: the stream of an answer."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from warmgraph_engine.server.deadline import deadline

_encoder = msgspec.json.Encoder()

DONE = b"data: [DONE]\n\n"


class EventStream:
    """Starts the response with its first event, so that an early failure still has a status."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                # nginx would otherwise collect the stream before passing it on
                "X-Accel-Buffering": "no",
            }
        )

    @property
    def started(self) -> bool:
        return self.response.prepared

    async def send(self, events: list[dict[str, Any]]) -> None:
        """All in one write. Waits while the client reads slowly, but not for ever."""
        if not events:
            return
        async with deadline(self._request):
            if not self.started:
                await self.response.prepare(self._request)
            await self.response.write(
                b"".join(b"data: %b\n\n" % _encoder.encode(event) for event in events)
            )

    async def end(self, last: bytes = DONE) -> None:
        async with deadline(self._request):
            await self.response.write_eof(last)
