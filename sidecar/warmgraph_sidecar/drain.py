"""Draining: leave the endpoints, let every proxy follow, finish what is in flight, then return.

Called by the pod's preStop hook, so the kubelet's SIGTERM to the engine waits for the return.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from warmgraph_sidecar.pod import Pod

POLL_SECONDS = 0.1
"""A tenth of a heartbeat: adds nothing that a stopping pod would notice."""


class Outcome(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Answer of `/drain`."""

    drained: bool
    """Nothing was in flight at the end."""
    in_flight: int
    seconds: float
    message: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a drain that began at `started` sees at `now`."""

    now: float
    started: float
    deadline: float
    settled_at: float | None
    """From here on no proxy sends requests any more; None if none ever did."""
    engine_can_finish: bool
    report_at: float
    in_flight: int


def outcome(seen: Progress) -> Outcome | None:
    """How the drain ended, or None while it must go on."""
    seconds = round(seen.now - seen.started, 3)
    if not seen.engine_can_finish:
        return Outcome(
            drained=seen.in_flight == 0,
            in_flight=seen.in_flight,
            seconds=seconds,
            message="the engine is gone or cannot finish anything",
        )
    if _settled(seen) and seen.in_flight == 0:
        return Outcome(drained=True, in_flight=0, seconds=seconds, message="nothing in flight")
    if seen.now >= seen.deadline:
        return Outcome(
            drained=False,
            in_flight=seen.in_flight,
            seconds=seconds,
            message="the drain timeout is over",
        )
    return None


def _settled(seen: Progress) -> bool:
    if seen.settled_at is None:
        return True
    # A report from before the settling may have missed a request that came after it.
    return min(seen.now, seen.report_at) >= seen.settled_at


class Drain:
    """Runs one drain at a time; calls that come meanwhile wait for the same one."""

    def __init__(
        self,
        pod: Pod,
        *,
        timeout_seconds: float,
        settle_seconds: float,
        tell_engine: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pod = pod
        self._timeout_seconds = timeout_seconds
        self._settle_seconds = settle_seconds
        self._tell_engine = tell_engine
        self._clock = clock
        self._running: asyncio.Task[Outcome] | None = None
        self.started_total = 0
        self.last: Outcome | None = None

    async def run(self) -> Outcome:
        """Drain, or join the drain that runs. A caller that leaves does not end it."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._drain())
        return await asyncio.shield(self._running)

    async def wait(self) -> None:
        """Until no drain runs."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _drain(self) -> Outcome:
        started = self._clock()
        self.started_total += 1
        self._pod.on_drain()
        self._tell_engine()
        last_ready = self._pod.last_ready
        settled_at = None if last_ready is None else last_ready + self._settle_seconds
        while True:
            ended = outcome(self._progress(started, settled_at))
            if ended is not None:
                break
            await asyncio.sleep(POLL_SECONDS)
        self._pod.on_drain_over()
        self.last = ended
        return ended

    def _progress(self, started: float, settled_at: float | None) -> Progress:
        report = self._pod.report
        return Progress(
            now=self._clock(),
            started=started,
            deadline=started + self._timeout_seconds,
            settled_at=settled_at,
            engine_can_finish=self._pod.engine_can_finish(),
            report_at=self._pod.report_at,
            in_flight=report.load.in_flight if report else 0,
        )
