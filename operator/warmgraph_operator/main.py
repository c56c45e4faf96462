"""The operator process: `warmgraph-operator`."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

import aiohttp

from warmgraph_operator.client import Cluster, connect
from warmgraph_operator.config import Config, parse
from warmgraph_operator.health import application, serve
from warmgraph_operator.leader import Election
from warmgraph_operator.logs import configure
from warmgraph_operator.metrics import Metrics
from warmgraph_operator.reconcile import Reconciler
from warmgraph_operator.reports import HttpPodReader, PodReader
from warmgraph_operator.sweep import Sweep
from warmgraph_operator.wake import Waker
from warmgraph_operator.watching import watch

logger = logging.getLogger(__name__)


class Operator:
    """Everything of one process. Tests run it in their own with another PodReader."""

    def __init__(
        self, config: Config, cluster: Cluster, reader: PodReader, metrics: Metrics
    ) -> None:
        self.config = config
        self.metrics = metrics
        self._reconciler = Reconciler(cluster, reader, config, metrics=metrics)
        self._waker = Waker(self._reconciler, metrics)
        self._sweep = Sweep(self._reconciler, self._waker, seconds=config.resync_seconds)
        self._working = False

    async def work(self) -> None:
        """Until cancelled, or until one of its parts ends, which none should."""
        self._working = True
        parts = [
            asyncio.create_task(watch(self._waker, self.config.namespaces), name="watch"),
            asyncio.create_task(self._sweep.run(), name="sweep"),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await self._waker.close()
            self._working = False

    def trouble(self) -> str:
        return self._sweep.trouble() if self._working else ""

    def ready(self) -> bool:
        """A stand-by that waits for the lease is ready to take over."""
        return self._sweep.swept or not self._working


async def run(config: Config) -> int:
    """Exit code. Ends by SIGTERM or SIGINT, or when the lease is lost."""
    metrics = Metrics()
    cluster = await connect(on_write=metrics.count_write)
    async with aiohttp.ClientSession() as session:
        operator = Operator(config, cluster, HttpPodReader(session), metrics)
        app = application(metrics, trouble=operator.trouble, ready=operator.ready)
        server = await serve(app, host=config.host, port=config.port)
        logger.info("listening on port %d", config.port)
        if config.leader_elect:
            election = Election(cluster, config.lease_namespace)
            work = asyncio.create_task(election.lead(operator.work))
        else:
            work = asyncio.create_task(operator.work())
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        asked = stop.is_set()
        for task in (work, stopped):
            task.cancel()
        results = await asyncio.gather(work, stopped, return_exceptions=True)
        await server.cleanup()
        await cluster.close()
    if asked:
        return 0
    logger.error("the operator ended by itself: %r", results[0])
    return 1


def main(arguments: Sequence[str] | None = None) -> None:
    config = parse(sys.argv[1:] if arguments is None else arguments)
    configure(form=config.log_format, level=config.log_level)
    sys.exit(asyncio.run(run(config)))
