"""Reading a request's body."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from aiohttp import web

from warmgraph_engine.server.deadline import deadline
from warmgraph_engine.server.errors import from_msgspec

T = TypeVar("T")


async def read_body(request: web.Request, kind: type[T]) -> T:
    """The JSON body as `kind`, whatever content type it claims. Raises ApiError."""
    async with deadline(request):
        content = await request.read()
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise from_msgspec(error) from error
