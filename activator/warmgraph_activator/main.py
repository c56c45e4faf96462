"""`warmgraph-activator`: puts the parts together and runs until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
from aiohttp import web

from warmgraph_activator import admin, cluster, forward
from warmgraph_activator.attend import attend
from warmgraph_activator.cluster import Cluster
from warmgraph_activator.handler import Handler
from warmgraph_activator.hold import Hold
from warmgraph_activator.listeners import Listeners
from warmgraph_activator.metrics import Metrics
from warmgraph_activator.objects import Key, deployment_decoder, pod_decoder
from warmgraph_activator.reflector import Reflector
from warmgraph_activator.refusal import Outcome, Refusal
from warmgraph_activator.registry import DeploymentSink, PodSink, Registry
from warmgraph_activator.settings import Settings, parse
from warmgraph_api import openfiles

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
"""While shutting down: how often to look whether somebody still waits."""


class Activator:
    """The parts, and how they begin and end."""

    def __init__(
        self,
        settings: Settings,
        api: Cluster,
        *,
        client: aiohttp.ClientSession,
        asking: aiohttp.ClientSession,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._settings = settings
        self._api = api
        self._client = client
        self._asking = asking
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._attending: dict[Key, asyncio.Task[None]] = {}
        self._ready = False
        self.metrics = Metrics()
        self.registry = Registry(added=self._added, removed=self._removed)
        self.metrics.watch(lambda: self.registry)
        self.listeners = Listeners(
            settings.host, serve=self._handler, finish_seconds=settings.forward_seconds
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then end in order."""
        runner = web.AppRunner(
            admin.application(self.registry, self.metrics, ready=lambda: self._ready),
            access_log=None,
        )
        await runner.setup()
        try:
            await web.TCPSite(
                runner, self._settings.host or None, self._settings.admin_port
            ).start()
            following = self._start(self._follow())
            await stop.wait()
            await self._end(following)
            for task in self._running:
                task.cancel()
        finally:
            await runner.cleanup()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """In the task group, so that a fault in any part ends the process and is seen."""
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _follow(self) -> None:
        """Ports are open for everything that exists before this activator counts as ready:
        after a restart at zero, nobody is sent to a port that isn't there yet."""
        reflectors: list[asyncio.Event] = []
        for namespace in self._settings.namespaces or ("",):
            deployments = Reflector(
                self._api,
                cluster.deployments(namespace),
                deployment_decoder.decode,
                DeploymentSink(self.registry, namespace),
            )
            pods = Reflector(
                self._api,
                cluster.model_pods(namespace),
                pod_decoder.decode,
                PodSink(self.registry, namespace),
            )
            self._start(deployments.run())
            self._start(pods.run())
            reflectors += [deployments.listed, pods.listed]
        for listed in reflectors:
            await listed.wait()
        await self.listeners.follow(self.registry.ports())
        self._ready = True
        log.info("ready: %d deployments", len(list(self.registry)))
        await self.listeners.run(self.registry.ports, self.registry.ports_changed)

    async def _end(self, following: asyncio.Task[None]) -> None:
        """1. Say unready and go on, until operator and proxies have followed.
        2. Take no more connections.
        3. Forward what waits as pods become ready; refuse the rest when its time is over.
        4. Let the answers on their way finish, within their time.
        """
        settings = self._settings
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._ready = False
        log.info("stopping")
        await asyncio.sleep(settings.settle_seconds)
        following.cancel()
        await self.listeners.stop_listening()
        while self._waiting():
            if loop.time() >= began + settings.hold_seconds:
                break
            await asyncio.sleep(POLL_SECONDS)
        self.registry.close(
            Refusal(Outcome.SHUTTING_DOWN, "this activator is shutting down; try again")
        )
        await self.listeners.finish()

    def _waiting(self) -> bool:
        return any(hold.line.held for hold in self.registry)

    def _added(self, hold: Hold) -> None:
        self._attending[hold.key] = self._start(
            attend(
                hold,
                scales=self._api,
                session=self._asking,
                port=self._settings.sidecar_port,
                metrics=self.metrics,
            )
        )

    def _removed(self, hold: Hold) -> None:
        self._attending.pop(hold.key).cancel()
        self.metrics.forget(hold.key)

    def _handler(self, hold: Hold) -> Handler:
        return Handler(
            hold,
            client=self._client,
            engine_port=self._settings.engine_port,
            metrics=self.metrics,
        )


async def run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        api = await cluster.connect(settings.kubeconfig)
        stack.push_async_callback(api.close)
        client = await stack.enter_async_context(forward.session())
        asking = await stack.enter_async_context(aiohttp.ClientSession())
        async with asyncio.TaskGroup() as tasks:
            activator = Activator(settings, api, client=client, asking=asking, tasks=tasks)
            await activator.run(stop)
    log.info("stopped")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = parse()
    openfiles.allow_many()
    asyncio.run(run(settings))
