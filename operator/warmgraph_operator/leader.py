"""One operator at work at a time, by a Lease. Off by default: the chart runs one replica, and two
that overlap for a moment do the same writes. It matters to whoever runs several on purpose.

The rule is client-go's: a Lease that another holds may be taken once it has not changed for its
duration *by this process's own clock*, so clocks need not agree. (The official client brings an
election of its own, whose Lease lock cannot create a Lease in v37.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import aiohttp

from warmgraph_operator.client import ApiError, Cluster
from warmgraph_operator.kinds import LEASE, Object

logger = logging.getLogger(__name__)

LEASE_NAME = "warmgraph-operator"

# client-go's own defaults, which administrators know: a dead leader is replaced within 15 s.
LEASE_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2.0


class Election:
    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        *,
        identity: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._clock = clock
        self._seen: tuple[str, float] = ("", 0.0)
        """Last resourceVersion of the Lease, and when this process first saw it."""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then work until the work ends or the Lease is lost; then return.
        A cancelled leader gives the Lease back, so that the next one need not wait."""
        while not await self._hold():  # noqa: ASYNC110 - no one tells when a Lease is free
            await asyncio.sleep(RETRY_SECONDS)
        logger.info("holding the lease %s/%s", self._namespace, LEASE_NAME)
        working = asyncio.ensure_future(work())
        try:
            await self._renew_during(working)
        finally:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
            await self._release()

    async def _renew_during(self, working: asyncio.Future[None]) -> None:
        renewed = self._clock()
        while not working.done():
            await asyncio.wait([working], timeout=RETRY_SECONDS)
            if await self._hold():
                renewed = self._clock()
            elif self._clock() - renewed > RENEW_SECONDS:
                logger.error("lost the lease %s/%s", self._namespace, LEASE_NAME)
                return

    async def _hold(self) -> bool:
        """Take or renew the Lease, if it is ours or free."""
        try:
            lease = await self._cluster.get(LEASE, self._namespace, LEASE_NAME)
            if lease is None:
                await self._cluster.create(LEASE, self._body({}))
            elif self._may_take(lease):
                await self._cluster.replace(LEASE, self._body(lease))
            else:
                return False
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.warning("the lease could not be held: %r", error)
            return False
        return True

    def _may_take(self, lease: Object) -> bool:
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, self._clock())
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            return True
        duration = spec.get("leaseDurationSeconds") or LEASE_SECONDS
        return self._clock() - self._seen[1] > duration

    def _body(self, lease: Object, *, holder: str | None = None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = lease.get("spec") or {}
        same = before.get("holderIdentity") == self._identity
        changes = before.get("leaseTransitions") or 0
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": lease.get("metadata") or {"name": LEASE_NAME, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity if holder is None else holder,
                "leaseDurationSeconds": LEASE_SECONDS,
                "acquireTime": before["acquireTime"] if same else now,
                "renewTime": now,
                "leaseTransitions": changes if same or not before else changes + 1,
            },
        }

    async def _release(self) -> None:
        try:
            lease = await self._cluster.get(LEASE, self._namespace, LEASE_NAME)
            if lease and (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                await self._cluster.replace(LEASE, self._body(lease, holder=""))
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.warning("the lease could not be given back: %r", error)
