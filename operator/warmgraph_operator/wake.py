"""When a pass runs: one task per resource, woken by events, by time, or by a change in its pods.

A wake-up is a flag, not a queue: however many events come, one more pass follows, and it reads
everything. So nothing is lost, and a burst costs one pass.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping

import aiohttp
import msgspec

from warmgraph_operator.client import ApiError
from warmgraph_operator.metrics import Metrics
from warmgraph_operator.reconcile import Outcome, Reconciler
from warmgraph_operator.resource import Key

logger = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.2
"""Between two passes of one resource: a pod's start brings a handful of events within this, and
nobody waits for a status that long."""

CONCURRENT_PASSES = 8
"""About a dozen reads each: enough for hundreds of resources, kind to the API server."""

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""After failed passes in a row; the last one for all further ones."""

PASS_TIMEOUT_SECONDS = 60.0
"""A pass that takes longer hangs; the next one starts from nothing anyway."""


class Waker:
    def __init__(self, reconciler: Reconciler, metrics: Metrics) -> None:
        self._reconciler = reconciler
        self._metrics = metrics
        self._slots = asyncio.Semaphore(CONCURRENT_PASSES)
        self._flags: dict[Key, asyncio.Event] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._told: dict[Key, str] = {}

    @property
    def told(self) -> Mapping[Key, str]:
        """The resourceVersion that the watch told last, of every resource looked after; empty for
        one that it has not told of."""
        return dict(self._told)

    def tell(self, key: Key, resource_version: str) -> None:
        """The watch told of the resource."""
        self.care(key)
        self._told[key] = resource_version

    def care(self, key: Key) -> None:
        """The resource exists: pass over it now, and from now on."""
        self._told.setdefault(key, "")
        if key not in self._tasks:
            self._flags[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._run(key), name=f"reconcile {key}")
            self._metrics.resources.set(len(self._tasks))
        self.wake(key, cause="event")

    def wake(self, key: Key, *, cause: str) -> None:
        """Something of the resource changed. Unknown resources are not looked after."""
        flag = self._flags.get(key)
        if flag is not None and not flag.is_set():
            self._metrics.wakes.labels(cause).inc()
            flag.set()

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._flags.pop(key, None)
        self._told.pop(key, None)
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
            self._reconciler.forget(key)
        self._metrics.resources.set(len(self._tasks))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: Key) -> None:
        flag, failures = self._flags[key], 0
        while True:
            flag.clear()
            outcome = await self._pass(key)
            if outcome is None:
                step = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
                failures += 1
                # Jitter: a restarted API server should not meet everybody at once.
                await asyncio.sleep(step * random.uniform(0.8, 1.2))  # noqa: S311
                continue
            failures = 0
            await asyncio.sleep(DEBOUNCE_SECONDS)
            await self._wait(flag, outcome)

    async def _pass(self, key: Key) -> Outcome | None:
        """None if it failed."""
        async with self._slots:
            try:
                with self._metrics.seconds.time():
                    async with asyncio.timeout(PASS_TIMEOUT_SECONDS):
                        outcome = await self._reconciler.reconcile(key)
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                logger.warning("%s: the pass failed and is tried again: %r", key, error)
            except msgspec.ValidationError as error:
                logger.error("%s: CRD and operator do not fit: %s", key, error)
            except Exception:
                # One resource's trouble must not end the care for it, or for the others.
                logger.exception("%s: the pass failed and is tried again", key)
            else:
                self._metrics.passes.labels("success").inc()
                return outcome
        self._metrics.passes.labels("error").inc()
        return None

    async def _wait(self, flag: asyncio.Event, outcome: Outcome) -> None:
        """Until a wake-up, a change in the pods, or the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + outcome.seconds
        while (left := end - loop.time()) > 0:
            step = min(left, outcome.sampler.seconds) if outcome.sampler else left
            try:
                async with asyncio.timeout(step):
                    await flag.wait()
                return
            except TimeoutError:
                pass
            if step < left and outcome.sampler and await self._due(outcome):
                self._metrics.wakes.labels("pod").inc()
                return
        self._metrics.wakes.labels("resync").inc()

    async def _due(self, outcome: Outcome) -> bool:
        assert outcome.sampler is not None
        try:
            return await outcome.sampler.due()
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.debug("%s: sampling failed: %r", outcome.sampler.infd.key, error)
            return False
