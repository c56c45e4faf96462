"""What the resource's conditions mean for a request that waits. Pure."""

from __future__ import annotations

from warmgraph_activator.objects import Deployment
from warmgraph_api.reasons import ConditionType, Reason

HOPELESS = frozenset(
    {
        Reason.IMAGE_PULL_FAILED,
        Reason.ENGINE_CRASH_LOOPING,
        Reason.OUT_OF_MEMORY,
        Reason.WARMUP_FAILED,
        Reason.STORAGE_CLASS_MISSING,
        Reason.CLAIM_MISSING,
        Reason.NAME_CONFLICT,
    }
)
"""No pod will come until somebody changes something. Not among them: Unschedulable, ClaimPending
and PodRejected (a node, a volume, its attachment or a quota may be on its way), WarmupStalled and
EngineFault (the engine is being restarted), ProgressDeadlineExceeded (slow is not hopeless)."""


def failure(deployment: Deployment) -> str | None:
    """Why no pod will come, or None while one may.

    At zero replicas conditions speak of an earlier attempt, so the next request tries again.
    """
    if deployment.spec.replicas == 0:
        return None
    serving = deployment.condition(ConditionType.SERVING)
    if serving is not None and serving.status == "True":
        return None
    ready = deployment.condition(ConditionType.READY)
    if ready is not None and ready.status != "True" and ready.reason in HOPELESS:
        return f"{ready.reason}: {ready.message}"
    return None


def state(deployment: Deployment) -> str:
    """Where the deployment stands, for the message of a request that waited in vain."""
    ready = deployment.condition(ConditionType.READY)
    if ready is None:
        return "the operator has not said yet why"
    return f"{ready.reason}: {ready.message}" if ready.message else ready.reason
