"""One listening port per deployment, opened and closed as the resources come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from warmgraph_activator.hold import Hold
from warmgraph_activator.objects import Key

log = logging.getLogger(__name__)

Serve = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

BACKLOG = 1024
"""Connections not yet accepted: a burst at zero arrives at once."""

RETRY_SECONDS = 1.0
"""Before another try for a port that somebody else holds."""


@dataclass
class _Listener:
    key: Key
    runner: web.ServerRunner
    site: web.TCPSite


class Listeners:
    """`serve` makes the handler of a deployment; `finish_seconds` is for answers on their way
    when a port closes."""

    def __init__(self, host: str, *, serve: Callable[[Hold], Serve], finish_seconds: float) -> None:
        self._host = host
        self._serve = serve
        self._finish_seconds = finish_seconds
        self._open: dict[int, _Listener] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, wanted: Callable[[], Mapping[int, Hold]], changed: asyncio.Event) -> None:
        """Follow `wanted` whenever `changed` is set; until cancelled."""
        while True:
            complete = await self.follow(wanted())
            try:
                async with asyncio.timeout(None if complete else RETRY_SECONDS):
                    await changed.wait()
            except TimeoutError:
                continue
            changed.clear()

    async def follow(self, wanted: Mapping[int, Hold]) -> bool:
        """Close what is not wanted, open what is. Whether every wanted port is open."""
        for port, listener in list(self._open.items()):
            hold = wanted.get(port)
            if hold is None or hold.key != listener.key:
                await self._close(port)
        for port, hold in wanted.items():
            if port not in self._open:
                await self._listen(port, hold)
        return wanted.keys() <= self._open.keys()

    async def stop_listening(self) -> None:
        """Take no more connections; those that exist go on."""
        for listener in self._open.values():
            await listener.site.stop()
        log.info("no new requests on %d ports", len(self._open))

    async def finish(self) -> None:
        """Wait for the answers on their way, for the set time at most, and close everything."""
        for port in list(self._open):
            await self._close(port, stopped=True)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _listen(self, port: int, hold: Hold) -> None:
        server = web.Server(
            self._serve(hold),
            # A caller that hangs up frees its place at once.
            handler_cancellation=True,
            access_log=None,
            # Bodies pass as they are.
            auto_decompress=False,
        )
        # aiohttp takes 0 for "no limit"; here 0 means zero.
        runner = web.ServerRunner(server, shutdown_timeout=max(self._finish_seconds, 0.001))
        await runner.setup()
        site = web.TCPSite(runner, self._host or None, port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            log.error("cannot listen on port %d for %s: %s", port, hold.key, error)
            await runner.cleanup()
            return
        self._open[port] = _Listener(hold.key, runner, site)
        log.info("port %d stands for %s", port, hold.key)

    async def _close(self, port: int, *, stopped: bool = False) -> None:
        listener = self._open.pop(port)
        if not stopped:
            await listener.site.stop()
        log.info("port %d closed", port)
        task = asyncio.create_task(listener.runner.cleanup())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
