"""Deployment and the record of its pod templates."""

from __future__ import annotations

from collections.abc import Sequence

from warmgraph_api import labels
from warmgraph_api.resource import RolloutStrategy
from warmgraph_operator.desired.metadata import owned
from warmgraph_operator.kinds import CONTROLLER_REVISION, DEPLOYMENT, Object
from warmgraph_operator.resource import InferenceDeployment


def deployment(infd: InferenceDeployment, *, replicas: int, template: Object) -> Object:
    rollout = infd.spec.rollout
    strategy: Object = {"type": "Recreate"}
    if rollout.strategy is RolloutStrategy.SURGE:
        strategy = {
            "type": "RollingUpdate",
            "rollingUpdate": {
                "maxSurge": rollout.max_surge,
                "maxUnavailable": rollout.max_unavailable,
            },
        }
    return {
        **owned(infd, DEPLOYMENT, infd.name),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {labels.DEPLOYMENT: infd.name}},
            "strategy": strategy,
            "progressDeadlineSeconds": rollout.progress_deadline_seconds,
            "revisionHistoryLimit": rollout.history_limit,
            "template": template,
        },
    }


def revision_record(
    infd: InferenceDeployment, *, revision: str, template: Object, number: int
) -> Object:
    """Immutable: the template that a revision was first given, whichever operator made it."""
    name = revision_name(infd, revision)
    return {
        **owned(infd, CONTROLLER_REVISION, name, extra_labels={labels.REVISION: revision}),
        "revision": number,
        "data": {"template": template},
    }


def revision_name(infd: InferenceDeployment, revision: str) -> str:
    return f"{infd.name}-{revision}"


def next_number(records: Sequence[Object]) -> int:
    return 1 + max((record["revision"] for record in records), default=0)
