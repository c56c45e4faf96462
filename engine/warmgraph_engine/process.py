"""The engine's process: it listens, loads and warms up, serves, and stops.

It listens within a second or so, and answers 503 until the warmup is over. The order of a stop: the
report says Draining, running requests get STOP_SECONDS, the server and the engine's thread end, the
cache keeps what traffic used.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from concurrent.futures import Future
from typing import NoReturn

import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry

from warmgraph_api.reasons import Reason
from warmgraph_api.report import Stage
from warmgraph_engine.backends.base import first_line
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.loop import EngineLoop
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.parallel.ranks import RankError
from warmgraph_engine.report import Publisher, Reporter
from warmgraph_engine.server.app import create_app, make_runner
from warmgraph_engine.server.service import Service
from warmgraph_engine.startup import Started
from warmgraph_engine.switch import ExecutionSwitch
from warmgraph_engine.tokenizer.files import ModelFilesError
from warmgraph_engine.warmup.runner import WarmupFailedError

_log = logging.getLogger(__name__)

STOP_SECONDS = 20.0
"""For requests that still run at SIGTERM. In a pod there are none: its preStop hook has drained
it. By hand, and under the 30 s that container runtimes wait by default, they may finish."""

STUCK_STEP_SECONDS = 300.0
"""A step that takes this long never ends: the largest prefill chunk takes seconds, and even on a
machine where it gets a tenth of a core, a minute. The sidecar then has the engine restarted."""

_POLL_SECONDS = 0.05
_WATCH_SECONDS = 5.0


def run(config: EngineConfig, reporter: Reporter, starting: Future[Started]) -> int:
    """Serve what `starting` gives, until a signal; returns the exit status."""
    return uvloop.run(_Process(config, reporter, starting).run())


class _Process:
    """Everything that lives as long as the process."""

    def __init__(self, config: EngineConfig, reporter: Reporter, starting: Future[Started]) -> None:
        self._config, self._reporter, self._starting = config, reporter, starting
        self._registry = CollectorRegistry()
        self._metrics = EngineMetrics(self._registry)
        self._switch = ExecutionSwitch(config.execution, self._registry)
        self._stop = asyncio.Event()
        self._started: Started | None = None
        self._watching: asyncio.Task[None] | None = None
        self._exit_status = 0

    async def run(self) -> int:
        self._loop = loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._switch.listen(loop)
        with self._reporter.span("Start process", start_seconds=0.0):
            publisher = self._publisher()
            service = Service(
                model_name=self._config.served_model_name,
                stage=lambda: (self._reporter.stage, self._reporter.message),
                metrics=self._metrics,
            )
            runner = make_runner(create_app(service))
            await runner.setup()
            if not await self._listen(runner):
                _abandon(1)
        started, starting = asyncio.Event(), self._starting
        starting.add_done_callback(lambda _: loop.call_soon_threadsafe(started.set))
        await _first(started, self._stop)
        if started.is_set():
            self._serve(service, starting)
        await self._stop.wait()
        await self._finish()
        await runner.cleanup()
        await service.close()
        if self._started is not None:
            await asyncio.to_thread(self._started.close)
        if publisher is not None:
            await asyncio.to_thread(publisher.stop)
        if self._started is None:
            _abandon(self._exit_status)
        return self._exit_status

    def _publisher(self) -> Publisher | None:
        if self._config.report_socket is None:
            return None
        publisher = Publisher(
            self._reporter,
            self._config.report_socket,
            on_drain=lambda: self._reporter.set_stage(Stage.DRAINING, "asked by the sidecar"),
        )
        publisher.start()
        return publisher

    async def _listen(self, runner: web.AppRunner) -> bool:
        site = web.TCPSite(runner, self._config.host, self._config.port)
        try:
            await site.start()
        except OSError as error:
            _log.error(
                "cannot listen on %s port %d: %s", self._config.host, self._config.port, error
            )
            await runner.cleanup()
            return False
        _log.info("listening on %s", ", ".join(f"{a[0]}:{a[1]}" for a in runner.addresses))
        return True

    def _serve(self, service: Service, starting: Future[Started]) -> None:
        """Take the loaded model into service, or say why it cannot be."""
        try:
            self._started = starting.result()
        except (ModelError, ModelFilesError, WarmupFailedError, RankError, MemoryError) as error:
            self._cannot_start(str(error) or type(error).__name__)
            return
        except Exception as error:
            _log.exception("the start failed")
            self._cannot_start(f"{type(error).__name__}: {first_line(error)}")
            return
        engine = EngineLoop(
            self._started.executor,
            self._started.sampler,
            metrics=self._metrics,
            on_fault=self._fault,
            speculative_tokens=self._config.speculative_tokens,
        )
        self._switch.attach(self._started.executor)
        for collector in self._started.metrics():
            self._registry.register(collector)
        self._reporter.load = engine.load
        service.attach(engine, self._started.text)
        self._reporter.set_ready()
        self._watching = asyncio.create_task(self._watch(engine))
        self._started.publishing.start()
        self._started.preparation.start(engine.wake)
        self._started.watch(self._fault)

    async def _watch(self, engine: EngineLoop) -> None:
        """Report a hung step: nothing else will, since its thread hangs with it."""
        while engine.step_seconds() < STUCK_STEP_SECONDS:  # noqa: ASYNC110
            await asyncio.sleep(_WATCH_SECONDS)
        seconds = engine.step_seconds()
        self._fault(f"a step has been running for {seconds:.0f} s")

    def _fault(self, message: str) -> None:
        """From any thread. The first one counts: others follow from it. With a sidecar, stay and
        let it tell the reason; alone, end."""
        if self._reporter.stage is Stage.FAILED:
            return
        self._reporter.fail(Reason.ENGINE_FAULT, message)
        self._exit_status = 1
        if self._config.report_socket is None:
            self._loop.call_soon_threadsafe(self._stop.set)

    def _cannot_start(self, message: str) -> None:
        """With a sidecar, stay and let it tell the reason and decide; alone, end."""
        self._reporter.fail(Reason.WARMUP_FAILED, message)
        self._exit_status = 1
        if self._config.report_socket is None:
            self._stop.set()

    async def _finish(self) -> None:
        """Let running requests end, for a bounded time."""
        if self._watching is not None:
            self._watching.cancel()
        self._reporter.set_stage(Stage.DRAINING, "stopping")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_SECONDS
        while self._reporter.load().in_flight and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)  # the engine's thread has no event for it


def _abandon(status: int) -> NoReturn:
    """End a process whose start goes on, or failed and left threads at work. They may be deep
    inside a library, or read a model for minutes; nothing is lost by not waiting for them."""
    logging.shutdown()
    os._exit(status)


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
