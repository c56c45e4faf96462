"""Kubernetes events: told to `kubectl describe`, never read back."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from datetime import UTC, datetime

import aiohttp

from warmgraph_api import labels
from warmgraph_operator.client import ApiError, Cluster
from warmgraph_operator.kinds import EVENT
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.status.compute import Happening

logger = logging.getLogger(__name__)

NOTE_LIMIT = 1024
"""Bytes, of the events API."""


async def publish(
    cluster: Cluster, infd: InferenceDeployment, happenings: Iterable[Happening]
) -> None:
    """An event that cannot be written is logged: it must not stop what it tells of."""
    for happening in happenings:
        logger.info("%s: %s: %s", infd.key, happening.reason, happening.note)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {
                "generateName": f"{infd.name}-",
                "namespace": infd.metadata.namespace,
            },
            "regarding": {
                "apiVersion": labels.API_VERSION,
                "kind": labels.KIND,
                "namespace": infd.metadata.namespace,
                "name": infd.name,
                "uid": infd.metadata.uid,
            },
            "type": "Warning" if happening.warning else "Normal",
            "reason": happening.reason,
            "note": happening.note.encode()[:NOTE_LIMIT].decode(errors="ignore"),
            "action": "Reconcile",
            "eventTime": now,
            "reportingController": f"{labels.GROUP}/operator",
            "reportingInstance": socket.gethostname()[:128],
        }
        try:
            await cluster.create(EVENT, body)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            logger.warning("%s: event %s was not written: %s", infd.key, happening.reason, error)
