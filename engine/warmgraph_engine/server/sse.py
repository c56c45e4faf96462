"""Server-sent events: the stream of an answer."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from warmgraph_engine.server.deadline import deadline

_encoder = msgspec.json.Encoder()

DONE = b"data: [DONE]\n\n"

SURE_BYTES = 32 << 10
"""Half of what a connection takes before it asks the writer to wait."""


def event(content: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % _encoder.encode(content)


class ChunkEvents:
    """Events that differ in the entry of `choices` alone: all else is written down once."""

    def __init__(self, chunk: dict[str, Any]) -> None:
        """`chunk` is an event with an empty list of choices."""
        encoded = event(chunk)
        place = encoded.index(b'"choices":[') + len(b'"choices":[')
        self._before, self._after = encoded[:place], encoded[place:]

    def event(self, entry: dict[str, Any]) -> bytes:
        return self._before + _encoder.encode(entry) + self._after


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

    async def send(self, events: bytes) -> None:
        """All in one write. Waits while the client reads slowly, but not for ever."""
        if self.started and self._cannot_wait(events):
            # To set up a deadline takes longer than to write a token.
            await self.response.write(events)
        elif events:
            async with deadline(self._request):
                if not self.started:
                    await self.response.prepare(self._request)
                await self.response.write(events)

    async def end(self, last: bytes = DONE) -> None:
        async with deadline(self._request):
            await self.response.write_eof(last)

    def _cannot_wait(self, events: bytes) -> bool:
        """Everything before has left, and this fits into what may be on its way."""
        transport = self._request.transport
        return (
            transport is not None
            and transport.get_write_buffer_size() == 0
            and 0 < len(events) < SURE_BYTES
        )
