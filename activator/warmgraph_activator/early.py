"""Heartbeats for a streaming caller: comments that keep its connection open while it waits.

The first one sends the status line 200, since comments need it. From then on an error can only
be told as an event (`data: {"error": …}`), which is how the OpenAI API tells errors in a stream.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    # Asks nginx and its like not to collect the comments in a buffer.
    "X-Accel-Buffering": "no",
}


class EarlyStream:
    """`seconds` between heartbeats, the first of them that long after the start."""

    def __init__(self, request: web.BaseRequest, seconds: float) -> None:
        self._request = request
        self._seconds = seconds
        self._next = asyncio.get_running_loop().time() + seconds
        self.response: web.StreamResponse | None = None
        """Set once the status line has gone out."""

    @property
    def next_in(self) -> float:
        """Seconds until the next heartbeat is due."""
        return max(0.0, self._next - asyncio.get_running_loop().time())

    async def beat(self, message: str) -> None:
        """Send a comment if it is time."""
        if self.next_in > 0:
            return
        self._next += self._seconds
        if self.response is None:
            self.response = web.StreamResponse(headers=HEADERS)
            self.response.force_close()
            await self.response.prepare(self._request)
        text = " ".join(f"warming up {message}".split())
        await self.response.write(f": {text}\n\n".encode())

    async def end(self, event: bytes) -> web.StreamResponse:
        """Send a last event and end the stream that `beat` began."""
        assert self.response is not None, "only a stream that began can end"
        await self.response.write(event)
        await self.response.write_eof()
        return self.response
