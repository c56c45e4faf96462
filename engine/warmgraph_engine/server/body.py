"""Reading a request's body."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from aiohttp import web

from warmgraph_engine.server.deadline import deadline
from warmgraph_engine.server.errors import bad_request, from_msgspec

T = TypeVar("T")

UNREADABLE_BODY = "unreadable_body"
"""Code of an error after which the connection cannot be used: what follows on it is unknown."""


async def read_body(request: web.Request, kind: type[T]) -> T:
    """The JSON body as `kind`, whatever content type it claims. Raises ApiError."""
    async with deadline(request):
        try:
            content = await request.read()
        except web.RequestPayloadError as error:
            # The parser puts its own status before the reason, on a line of its own.
            reason = str(error).splitlines()[-1].strip()
            raise bad_request(f"the body cannot be read: {reason}", code=UNREADABLE_BODY) from error
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise from_msgspec(error) from error
    except RecursionError as error:
        # Of fields that are not looked at: all others have a depth of their own.
        raise bad_request("the body is nested too deeply", code="invalid_json") from error
