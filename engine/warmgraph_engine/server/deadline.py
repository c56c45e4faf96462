"""A bound on how long a client may hold up its own request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from warmgraph_engine.server.keys import SERVICE


@asynccontextmanager
async def deadline(request: web.Request) -> AsyncIterator[None]:
    """For one read from or write to the client. Raises ConnectionResetError and drops the
    connection when it takes longer than the settings allow: as if the client had left."""
    seconds = request.app[SERVICE].settings.stalled_client_seconds
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(f"the client did not move for {seconds:g} s") from None
