"""One operator at work at a time, by a Lease. Off by default: the chart runs one replica, and two
that overlap for a moment do the same writes. It matters to whoever runs several on purpose."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from kubernetes.aio.leaderelection.electionconfig import Config as ElectionConfig
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

logger = logging.getLogger(__name__)

LEASE_NAME = "warmgraph-operator"

# client-go's own defaults, which administrators know: a dead leader is replaced within 15 s.
LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 15, 10, 2


async def lead(api: Any, namespace: str, work: Callable[[], Awaitable[None]]) -> None:
    """Wait for the Lease, then work until the work ends or the Lease is lost; then return."""

    async def started() -> None:
        logger.info("holding the lease %s/%s", namespace, LEASE_NAME)
        await work()

    async def lost() -> None:
        logger.error("lost the lease %s/%s", namespace, LEASE_NAME)

    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    await LeaderElection(
        ElectionConfig(
            LeaseLock(LEASE_NAME, namespace, identity, api),
            lease_duration=LEASE_SECONDS,
            renew_deadline=RENEW_SECONDS,
            retry_period=RETRY_SECONDS,
            onstarted_leading=started,
            onstopped_leading=lost,
        )
    ).run()
