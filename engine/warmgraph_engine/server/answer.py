"""From a generation to a response: whole, or as a stream of events."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence as Seq
from typing import Any, Protocol

import msgspec
from aiohttp import web

from warmgraph_engine.metrics import Outcome
from warmgraph_engine.server.choice import Choice, Piece
from warmgraph_engine.server.deadline import deadline
from warmgraph_engine.server.errors import as_api_error
from warmgraph_engine.server.generation import Generation
from warmgraph_engine.server.keys import OUTCOME
from warmgraph_engine.server.protocol import Common
from warmgraph_engine.server.sse import ChunkEvents, EventStream, event


class Shape(Protocol):
    """How one endpoint writes choices."""

    @property
    def prefix(self) -> str:
        """Of the answer's id."""
        ...

    @property
    def whole(self) -> str:
        """`object` of a whole answer."""
        ...

    @property
    def part(self) -> str:
        """`object` of a streamed chunk."""
        ...

    def choice(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        """An entry of `choices` in a whole answer."""
        ...

    def opening(self, choice: Choice, /) -> dict[str, Any] | None:
        """The entry of a choice's first chunk, if it has one before its text."""
        ...

    def delta(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        """The entry of a chunk; the choice's last one if it has a finish reason."""
        ...


class Answer:
    """One request's answer in the making."""

    def __init__(self, shape: Shape, model: str, prompts: Seq[Seq[int]]) -> None:
        self._shape = shape
        self._head = {
            "id": f"{shape.prefix}-{os.urandom(12).hex()}",
            "created": int(time.time()),
            "model": model,
        }
        self._prompt_tokens = sum(len(prompt) for prompt in prompts)

    async def whole(self, request: web.Request, generation: Generation) -> web.StreamResponse:
        """Wait for everything, then answer."""
        pieces = {choice.index: Piece() for choice in generation.choices}
        while batch := await generation.pieces():
            for choice, piece in batch:
                pieces[choice.index].text += piece.text
                pieces[choice.index].scored += piece.scored
        entries = [
            self._shape.choice(choice, pieces[choice.index]) for choice in generation.choices
        ]
        return await write_json(
            request,
            self._head
            | {
                "object": self._shape.whole,
                "choices": entries,
                "usage": self._usage(generation),
            },
        )

    async def stream(
        self, request: web.Request, generation: Generation, options: Common
    ) -> web.StreamResponse:
        """Send what there is as soon as it is there. A failure after the first event can only be
        an event itself, and ends the stream without [DONE]."""
        usage = options.stream_options is not None and bool(options.stream_options.include_usage)
        # With usage asked for, all chunks have the field, and only the last one a value.
        chunks = ChunkEvents(self._chunk() | ({"usage": None} if usage else {}))
        stream = EventStream(request)
        try:
            opened: set[int] = set()
            while batch := await generation.pieces():
                events = b""
                for choice, piece in batch:
                    if choice.index not in opened:
                        opened.add(choice.index)
                        opening = self._shape.opening(choice)
                        events += chunks.event(opening) if opening else b""
                    if piece.text or piece.scored or choice.finish_reason is not None:
                        events += chunks.event(self._shape.delta(choice, piece))
                await stream.send(events)
            if usage:
                await stream.send(event(self._chunk() | {"usage": self._usage(generation)}))
            await stream.end()
        except ConnectionResetError:
            raise
        except Exception as error:
            if not stream.started:
                raise
            request[OUTCOME] = Outcome.FAILED
            await stream.send(event(as_api_error(error).body()))
            await stream.end(b"")
        return stream.response

    def _chunk(self) -> dict[str, Any]:
        return self._head | {"object": self._shape.part, "choices": []}

    def _usage(self, generation: Generation) -> dict[str, int]:
        generated = sum(choice.generated for choice in generation.choices)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self._prompt_tokens + generated,
        }


async def write_json(request: web.Request, content: Any) -> web.StreamResponse:
    """A JSON response, sent to its last byte before this returns: a request is in flight until
    then, and its ticket is still open here."""
    response = web.Response(body=msgspec.json.encode(content), content_type="application/json")
    async with deadline(request):
        await response.prepare(request)
        await response.write_eof()
    return response
