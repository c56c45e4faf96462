"""Writing to the resource itself: its status, and its replicas where the autoscaler decided."""

from __future__ import annotations

import msgspec

from warmgraph_api import labels
from warmgraph_api.reasons import Reason
from warmgraph_api.status import Status
from warmgraph_operator.client import CONFLICT, NOT_FOUND, ApiError, Cluster
from warmgraph_operator.events import publish
from warmgraph_operator.kinds import INFERENCE_DEPLOYMENT, Object
from warmgraph_operator.metrics import Metrics
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.scale.decide import Decision
from warmgraph_operator.status.compute import Happening, completed_start, happenings


async def write_status(
    cluster: Cluster, metrics: Metrics, infd: InferenceDeployment, after: Status
) -> None:
    """Write the status and publish the events, if anything changed."""
    if after == infd.status:
        return
    body: Object = {
        "apiVersion": labels.API_VERSION,
        "kind": labels.KIND,
        "metadata": {
            "name": infd.key.name,
            "namespace": infd.key.namespace,
            "uid": infd.metadata.uid,
        },
        "status": msgspec.to_builtins(after),
    }
    try:
        await cluster.apply(INFERENCE_DEPLOYMENT, body, subresource="status")
    except ApiError as error:
        if error.status in (CONFLICT, NOT_FOUND):
            return  # deleted meanwhile
        raise
    start = completed_start(infd.status, after)
    if start is not None:
        metrics.record_start(start, after.cache.result)
    await publish(cluster, infd, happenings(infd.status, after))


async def write_scale(
    cluster: Cluster, metrics: Metrics, infd: InferenceDeployment, decision: Decision
) -> bool:
    """Write what the autoscaler decided, and say whether it was written: not if somebody changed
    the resource meanwhile. The next pass then decides on what it finds."""
    before, after = infd.spec.replicas, decision.replicas
    try:
        await cluster.scale(
            infd.key.namespace,
            infd.key.name,
            replicas=after,
            resource_version=infd.metadata.resource_version,
        )
    except ApiError as error:
        if error.status in (CONFLICT, NOT_FOUND):
            return False
        raise
    metrics.scalings.labels("up" if after > before else "down").inc()
    note = f"from {before} to {after} replicas: {decision.because}"
    await publish(cluster, infd, [Happening(False, Reason.SCALED, note)])
    return True
