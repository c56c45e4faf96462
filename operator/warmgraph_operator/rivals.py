"""Two autoscalers on one number of replicas: found, said, and the built-in one gives way."""

from __future__ import annotations

from typing import NamedTuple

from warmgraph_api import labels
from warmgraph_api.reasons import Reason
from warmgraph_api.resource import Autoscaler
from warmgraph_operator.kinds import DEPLOYMENT, SCALED_OBJECT, Object
from warmgraph_operator.observed import Observed
from warmgraph_operator.problem import Problem
from warmgraph_operator.resource import InferenceDeployment


class Rivalry(NamedTuple):
    problem: Problem | None = None
    built_in_may_write: bool = True
    """False: the built-in autoscaler leaves spec.replicas alone."""
    deployment_scaled_by_others: bool = False
    """True: something writes the Deployment's replicas; the operator does not fight it."""


def rivalry(infd: InferenceDeployment, observed: Observed) -> Rivalry:
    """Who else scales this resource, or the Deployment behind its back."""
    scalers = [scaler for scaler in observed.autoscalers if not _made_by_keda(scaler)]
    on_deployment = [_name(s) for s in scalers if _targets(s, DEPLOYMENT.kind, infd.name)]
    on_resource = [_name(s) for s in scalers if _targets(s, labels.KIND, infd.name)]
    if on_deployment:
        return Rivalry(
            Problem.of(
                Reason.CONFLICTING_AUTOSCALER,
                f"{on_deployment[0]} scales the Deployment {infd.name}, which the operator "
                f"scales by this resource: point it at {labels.KIND} {infd.name} and set "
                "scaling.autoscaler to External",
            ),
            built_in_may_write=False,
            deployment_scaled_by_others=True,
        )
    if on_resource and infd.spec.scaling.autoscaler is Autoscaler.BUILT_IN:
        return Rivalry(
            Problem.of(
                Reason.CONFLICTING_AUTOSCALER,
                f"{on_resource[0]} scales this resource, and so would the built-in autoscaler, "
                "which therefore does nothing: set scaling.autoscaler to External, or delete "
                f"{on_resource[0]}",
            ),
            built_in_may_write=False,
        )
    if len(on_resource) > 1:
        names = " and ".join(sorted(on_resource))
        return Rivalry(
            Problem.of(
                Reason.CONFLICTING_AUTOSCALER, f"{names} both scale this resource: delete one"
            )
        )
    return Rivalry()


def _targets(scaler: Object, kind: str, name: str) -> bool:
    target = scaler["spec"].get("scaleTargetRef") or {}
    # A ScaledObject that names no kind means a Deployment.
    return target.get("kind", DEPLOYMENT.kind) == kind and target.get("name") == name


def _made_by_keda(scaler: Object) -> bool:
    """KEDA drives each ScaledObject by an autoscaler of its own: the two are one."""
    owners = scaler["metadata"].get("ownerReferences") or []
    return any(owner["kind"] == SCALED_OBJECT.kind for owner in owners)


def _name(scaler: Object) -> str:
    return f"{scaler['kind']} {scaler['metadata']['name']}"
