"""From the engine's thread to the requests' handlers: what steps brought, sorted by output.

Tokens arrive by the step, and are timed and counted by the step: all that is done for each single
one here is done for some 40,000 a second.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from warmgraph_engine.loop import Output
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.server.choice import Choice

AT_ONCE = 16
"""Outputs that a step's tokens reach as soon as they are there, however short the steps are."""

STEP_SECONDS = 60e-6
"""What a step must take for each output for all to be told of it: telling one takes the event loop
some 40 µs, and the engine's thread, which needs the interpreter too, 10."""

EVENT_SECONDS = 160e-6
"""For each output, how long the next tokens wait at least where steps are shorter. So of 64 fast
streams each gets an event every 10 ms, with all tokens since the last: all in one go, since a
thread that is interrupted now and then is slower than one that waits once."""


class Mailbox:
    """A request's outputs that wait for its handler. A handler that is behind finds several of
    each choice, and so writes fewer, longer pieces: a busy event loop costs latency, not
    throughput."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._filled: list[Slot] = []
        self._arrived: asyncio.Future[None] | None = None
        """What the handler waits for."""

    def put(self, slot: Slot) -> None:
        """Tell the handler that `slot` holds outputs."""
        self._filled.append(slot)
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def take(self) -> list[tuple[Choice, list[Output]]]:
        """Wait for outputs; all there are, one or more of each choice that has any."""
        if not self._filled:
            self._arrived = self._loop.create_future()
            await self._arrived
        filled, self._filled = self._filled, []
        return [(slot.choice, slot.empty()) for slot in filled]


@dataclass(slots=True, eq=False)
class Slot:
    """One choice's part of a mailbox."""

    choice: Choice
    mailbox: Mailbox
    last: float
    """When its newest token came; before the first one, when the request was accepted."""
    begun: bool = False
    outputs: list[Output] = field(default_factory=list)

    def empty(self) -> list[Output]:
        outputs, self.outputs = self.outputs, []
        return outputs


class Post:
    """Brings a step's outputs to the mailboxes. `deliver` is called on the engine thread, all
    else on the event loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: EngineMetrics) -> None:
        self._loop = loop
        self._metrics = metrics
        self._slots: dict[int, Slot] = {}
        """By sequence."""
        self._lock = threading.Lock()
        self._delivered: list[tuple[list[Output], float]] = []
        """What steps brought and nobody was told of yet, and when it came."""
        self._not_before = 0.0
        self._newest = 0.0
        """When the newest of those that were told of came."""

    def deliver(self, outputs: list[Output]) -> None:
        with self._lock:
            waiting = bool(self._delivered)
            self._delivered.append((outputs, time.monotonic()))
        if not waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._distribute_in_time)

    def register(self, choices: Iterable[Choice]) -> Mailbox:
        """A request is accepted now: where its outputs will be."""
        box, now = Mailbox(self._loop), time.monotonic()
        self._slots.update((choice.sequence.id, Slot(choice, box, now)) for choice in choices)
        return box

    def unregister(self, choices: Iterable[Choice]) -> None:
        for choice in choices:
            self._slots.pop(choice.sequence.id, None)

    def _distribute_in_time(self) -> None:
        left = self._not_before - self._loop.time()
        if left > 0:
            self._loop.call_later(left, self._distribute)
        else:
            self._distribute()

    def _distribute(self) -> None:
        with self._lock:
            delivered, self._delivered = self._delivered, []
        told = 0
        slots = self._slots
        gaps: Counter[float] = Counter()
        for outputs, at in delivered:
            for output in outputs:
                slot = slots.get(output.sequence.id)
                if slot is None:  # the client has gone
                    continue
                if not slot.outputs:
                    slot.mailbox.put(slot)
                    told += 1
                slot.outputs.append(output)
                if output.token is None:
                    continue
                if slot.begun:
                    gaps[at - slot.last] += 1
                else:
                    slot.begun = True
                    self._metrics.first_token.observe(at - slot.last)
                slot.last = at
        for gap, count in gaps.items():
            self._metrics.inter_token.observe(gap, count)
        step_seconds = (delivered[-1][1] - self._newest) / len(delivered)
        self._newest = delivered[-1][1]
        if told > AT_ONCE and step_seconds < STEP_SECONDS * told:
            self._not_before = self._loop.time() + EVENT_SECONDS * told
