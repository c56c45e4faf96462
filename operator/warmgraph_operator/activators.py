"""What the activators are and hold: one view for all resources, refreshed beside whoever asks."""

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

STALE_SECONDS = 10.0
"""Nobody waits for a refresh while the view is younger than this: a pass that wakes a deployment
must not wait for an activator that is just going."""


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
        self._view = View()
        self._read_at = float("-inf")
        self._refresh: asyncio.Task[None] | None = None

    @property
    def configured(self) -> bool:
        return bool(self._config.activator_namespace)

    async def view(self) -> View:
        """Raises ApiError and the transport's errors, where there is no view young enough."""
        if not self.configured:
            return View(held={})
        age = self._clock() - self._read_at
        if age >= FRESH_SECONDS and (self._refresh is None or self._refresh.done()):
            self._refresh = asyncio.create_task(self._read())
            self._refresh.add_done_callback(_note_failure)
        if age >= STALE_SECONDS and self._refresh is not None:
            await asyncio.shield(self._refresh)
        return self._view

    async def answer_for(self, key: Key, addresses: tuple[str, ...], port: int) -> bool:
        """Whether each of them, and there is one, answers for this deployment on its port: callers
        are spread over all."""
        answers = await asyncio.gather(
            *(self._reader.answers_for(address, port) for address in addresses)
        )
        return bool(answers) and all(answer == (key.namespace, key.name) for answer in answers)

    async def _read(self) -> None:
        addresses = await self._addresses()
        answers = await asyncio.gather(*(self._reader.queues(address) for address in addresses))
        self._view = View(addresses=addresses, held=_sum(answers))
        self._read_at = self._clock()

    async def _addresses(self) -> tuple[str, ...]:
        namespace = self._config.activator_namespace
        try:
            pods = await self._cluster.list(POD, namespace, labels=self._config.activator_selector)
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            # Everything but the way to zero works without them.
            logger.error("may not list the activators in namespace %s: %s", namespace, error)
            return ()
        return tuple(
            sorted(
                pod["status"]["podIP"]
                for pod in pods
                if is_true(pod, "Ready") and not being_deleted(pod) and pod["status"].get("podIP")
            )
        )


def _sum(answers: list[Mapping[tuple[str, str], int] | None]) -> dict[tuple[str, str], int] | None:
    held: dict[tuple[str, str], int] = {}
    for answer in answers:
        if answer is None:
            return None
        for queue, count in answer.items():
            held[queue] = held.get(queue, 0) + count
    return held


def _note_failure(refresh: asyncio.Task[None]) -> None:
    """Whoever waits for it is told as well; often nobody does."""
    if not refresh.cancelled() and refresh.exception() is not None:
        logger.warning("the activators could not be read: %r", refresh.exception())
