"""A request's outputs as the event loop sees them: submitted together, cancelled together."""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType

from warmgraph_engine.loop import EngineFaultError, EngineLoop, Output
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.server.choice import Choice, Piece
from warmgraph_engine.server.errors import engine_failed


class Mailbox:
    """Outputs that wait for their request's handler. A handler that is behind finds several,
    and so writes fewer, longer pieces: a busy event loop costs latency, not throughput."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outputs: list[tuple[Output, float]] = []
        self._arrived: asyncio.Future[None] | None = None
        """What the handler waits for."""

    def put(self, output: Output, at: float) -> None:
        self._outputs.append((output, at))
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def take(self) -> list[tuple[Output, float]]:
        if not self._outputs:
            self._arrived = self._loop.create_future()
            await self._arrived
        outputs, self._outputs = self._outputs, []
        return outputs


AT_ONCE = 16
"""Outputs that a step's tokens reach as soon as they are there, however short the steps are."""

EVENT_SECONDS = 125e-6
"""For each output beyond those: how long the next tokens wait at least. Telling one takes the
event loop some 30 µs, and the engine's thread needs the interpreter too. So of 64 streams each gets
an event every 6 ms at most, with all tokens since the last."""


class Post:
    """Brings a step's outputs to the mailboxes. `deliver` is called on the engine thread, all
    else on the event loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._boxes: dict[int, Mailbox] = {}
        self._lock = threading.Lock()
        self._delivered: list[tuple[list[Output], float]] = []
        """What steps brought and nobody was told of yet, and when it came."""
        self._not_before = 0.0

    def deliver(self, outputs: list[Output]) -> None:
        with self._lock:
            waiting = bool(self._delivered)
            self._delivered.append((outputs, time.monotonic()))
        if not waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._distribute_in_time)

    def _distribute_in_time(self) -> None:
        left = self._not_before - self._loop.time()
        if left > 0:
            self._loop.call_later(left, self._distribute)
        else:
            self._distribute()

    def register(self, choices: list[Choice]) -> Mailbox:
        box = Mailbox(self._loop)
        self._boxes.update((choice.sequence.id, box) for choice in choices)
        return box

    def unregister(self, choices: list[Choice]) -> None:
        for choice in choices:
            self._boxes.pop(choice.sequence.id, None)

    def _distribute(self) -> None:
        with self._lock:
            delivered, self._delivered = self._delivered, []
        told = len({output.sequence.id for outputs, _ in delivered for output in outputs})
        self._not_before = self._loop.time() + EVENT_SECONDS * max(0, told - AT_ONCE)
        for outputs, at in delivered:
            for output in outputs:
                box = self._boxes.get(output.sequence.id)
                if box is not None:  # else the client has gone
                    box.put(output, at)


class Generation:
    """An async context manager: entering submits the choices, leaving cancels what still runs."""

    def __init__(
        self, engine: EngineLoop, post: Post, metrics: EngineMetrics, choices: list[Choice]
    ) -> None:
        self._engine = engine
        self._post = post
        self._metrics = metrics
        self.choices = choices
        self._open = {choice.sequence.id: choice for choice in choices}
        self._last_token: dict[int, float] = {}
        self._failure: EngineFaultError | None = None

    async def __aenter__(self) -> Generation:
        self._accepted = time.monotonic()
        self._box = self._post.register(self.choices)
        try:
            self._engine.submit([choice.sequence for choice in self.choices])
        except BaseException:
            self._post.unregister(self.choices)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._post.unregister(self.choices)
        if self._open:
            self._engine.cancel([choice.sequence for choice in self._open.values()])

    async def pieces(self) -> list[tuple[Choice, Piece]]:
        """Wait for what is new; all of it, for each choice that has something new. Nothing once
        all have ended. Raises ApiError if the engine failed, after what it said before."""
        batch: list[tuple[Choice, Piece]] = []
        while self._open and not batch:
            if self._failure is not None:
                raise engine_failed(str(self._failure))
            by_choice: dict[int, list[Output]] = {}
            for output, at in await self._box.take():
                if output.error is not None:
                    self._failure = output.error
                    continue
                by_choice.setdefault(output.sequence.id, []).append(output)
                if output.token is not None:
                    self._measure(output.sequence.id, at)
            for sequence_id, outputs in by_choice.items():
                choice = self._open.get(sequence_id)
                if choice is None:  # a token drawn before the engine learnt of a stop string
                    continue
                before = choice.generated
                batch.append((choice, choice.feed(outputs)))
                self._metrics.generated_tokens.inc(choice.generated - before)
                if choice.finish_reason is not None:
                    del self._open[sequence_id]
                    if choice.stopped_early:
                        self._engine.cancel([choice.sequence])
        return batch

    def _measure(self, sequence_id: int, at: float) -> None:
        last = self._last_token.get(sequence_id)
        if last is None:
            self._metrics.first_token.observe(at - self._accepted)
        else:
            self._metrics.inter_token.observe(at - last)
        self._last_token[sequence_id] = at
