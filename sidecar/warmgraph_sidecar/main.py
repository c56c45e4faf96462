"""`warmgraph-sidecar`: puts the parts together and runs until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector

from warmgraph_sidecar.drain import Drain
from warmgraph_sidecar.metrics import PodCollector
from warmgraph_sidecar.pod import Pod
from warmgraph_sidecar.receiver import Receiver
from warmgraph_sidecar.server import application
from warmgraph_sidecar.settings import Settings, parse

log = logging.getLogger(__name__)

HTTP_CLOSE_SECONDS = 2.0
"""For answers on their way at the end; the kubelet leaves 2 s when the grace period is over."""


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Answer until `stop` is set, and then until a drain that runs has ended.

    As a native sidecar it is stopped after the engine, so nothing is left to wait for. Where
    both are stopped at once (plain containers, older nodes) the engine's hook still gets its
    answer.
    """
    pod = Pod(settings.policy)
    receiver = Receiver(pod, settings.report_socket)
    drain = Drain(
        pod,
        timeout_seconds=settings.drain_timeout_seconds,
        settle_seconds=settings.drain_settle_seconds,
        tell_engine=receiver.send_drain,
    )
    registry = CollectorRegistry()
    registry.register(PodCollector(pod, drain, receiver))
    ProcessCollector(registry=registry)

    await receiver.start()
    runner = web.AppRunner(
        application(pod, drain, registry),
        access_log=None,
        shutdown_timeout=HTTP_CLOSE_SECONDS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host or None, settings.port).start()
        log.info("listening on port %d and on %s", settings.port, settings.report_socket)
        await stop.wait()
        await drain.wait()
    finally:
        await receiver.close()
        await runner.cleanup()


async def run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = parse()
    try:
        asyncio.run(run(settings))
    except OSError as error:
        sys.exit(f"warmgraph-sidecar: cannot listen: {error}")
