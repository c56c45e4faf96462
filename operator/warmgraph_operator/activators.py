"""What the activators are and hold: one view for all resources, refreshed a few times a minute
by whoever asks, however many ask."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from warmgraph_operator.client import FORBIDDEN, ApiError, Cluster
from warmgraph_operator.config import Config
from warmgraph_operator.kinds import POD
from warmgraph_operator.observed import being_deleted, is_true
from warmgraph_operator.reports import PodReader
from warmgraph_operator.resource import Key

logger = logging.getLogger(__name__)

FRESH_SECONDS = 2.0
"""An activator that went is out of the slices within about this, and a held request is counted
by the autoscaler within it; one list and one request per activator cost little."""


class View(NamedTuple):
    addresses: tuple[str, ...] = ()
    """Of ready activator pods, sorted."""
    held: Mapping[tuple[str, str], int] | None = None
    """Requests held by all of them, by (namespace, name); None if one did not answer."""


class Activators:
    def __init__(
        self,
        cluster: Cluster,
        reader: PodReader,
        config: Config,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._config = config
        self._clock = clock
        self._lock = asyncio.Lock()
        self._view = View()
        self._read_at = float("-inf")

    @property
    def configured(self) -> bool:
        return bool(self._config.activator_namespace)

    async def view(self) -> View:
        if not self.configured:
            return View(held={})
        async with self._lock:
            if self._clock() - self._read_at >= FRESH_SECONDS:
                self._view = await self._read()
                self._read_at = self._clock()
            return self._view

    async def answer_for(self, key: Key, addresses: tuple[str, ...], port: int) -> bool:
        """Whether any of them answers for this deployment on its port."""
        answers = await asyncio.gather(
            *(self._reader.answers_for(address, port) for address in addresses)
        )
        return (key.namespace, key.name) in answers

    async def _read(self) -> View:
        namespace = self._config.activator_namespace
        try:
            pods = await self._cluster.list(POD, namespace, labels=self._config.activator_selector)
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            # Everything but the way to zero works without them.
            logger.error("may not list the activators in namespace %s: %s", namespace, error)
            return View()
        addresses = sorted(
            pod["status"]["podIP"]
            for pod in pods
            if is_true(pod, "Ready") and not being_deleted(pod) and pod["status"].get("podIP")
        )
        answers = await asyncio.gather(*(self._reader.queues(address) for address in addresses))
        held: dict[tuple[str, str], int] | None = {}
        for answer in answers:
            if answer is None or held is None:
                held = None
                continue
            for queue, count in answer.items():
                held[queue] = held.get(queue, 0) + count
        return View(addresses=tuple(addresses), held=held)
