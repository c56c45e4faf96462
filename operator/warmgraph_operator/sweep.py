"""The second leg beside the watches: a plain list every resync.

It finds resources that no watch told of and forgets those that are gone. A watch that is behind a
list by more than a resync is dead, whatever its library believes: the operator then reports itself
unhealthy, and the kubelet starts a new one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import aiohttp

from warmgraph_operator.client import ApiError
from warmgraph_operator.reconcile import Reconciler
from warmgraph_operator.resource import Key
from warmgraph_operator.wake import Waker

logger = logging.getLogger(__name__)

MISSED_SWEEPS = 3
"""Failed lists in a row are an API server's trouble; no list at all for this many periods means
that this process is stuck."""


BEHIND_SWEEPS = 2
"""A watch may be late once, for a resource that comes and goes at the wrong moment."""


class Sweep:
    def __init__(
        self,
        reconciler: Reconciler,
        waker: Waker,
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reconciler = reconciler
        self._waker = waker
        self._seconds = seconds
        self._clock = clock
        self._moment = min(seconds / 3, 10.0)
        self._swept_at = clock()
        self._behind = 0
        self.swept = False
        """The first list is in: every resource is looked after."""

    async def run(self) -> None:
        while True:
            try:
                await self.once()
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                logger.warning("the list of resources failed and is tried again: %r", error)
            self._swept_at = self._clock()
            await asyncio.sleep(self._seconds - self._moment)

    async def once(self) -> None:
        before = self._waker.told
        listed = {
            infd.key: infd.metadata.resource_version for infd in await self._reconciler.everything()
        }
        for key in listed.keys() - before.keys():
            self._waker.care(key)
        for key in before.keys() - listed.keys():
            self._waker.forget(key)
        self.swept = True
        # The watch gets a moment to say by itself what the list has just said.
        await asyncio.sleep(self._moment)
        behind = untold(before, listed, self._waker.told)
        for key in behind:
            logger.warning("%s: the list knows a version that the watch did not tell of", key)
            self._waker.wake(key, cause="resync")
        self._behind = self._behind + 1 if behind else 0

    def trouble(self) -> str:
        """Empty, or why this process needs a restart."""
        if self._behind >= BEHIND_SWEEPS:
            return "the watch does not tell of changes any more"
        since = self._clock() - self._swept_at
        if since > MISSED_SWEEPS * self._seconds:
            return f"no list of resources for {since:.0f} s"
        return ""


def untold(
    before: Mapping[Key, str], listed: Mapping[Key, str], after: Mapping[Key, str]
) -> list[Key]:
    """Resources whose listed version is not the one that the watch told, while the watch has told
    nothing of them since before the list."""
    return [
        key
        for key, version in listed.items()
        if version != after.get(key, "") and before.get(key, "") == after.get(key, "")
    ]
