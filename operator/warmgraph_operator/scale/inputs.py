"""The autoscaler's sample, from what the operator has seen anyway."""

from __future__ import annotations

from collections.abc import Mapping

from warmgraph_api.report import Load, PodState
from warmgraph_operator.activators import View
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import Observed, ready_pods
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.scale.decide import Inputs
from warmgraph_operator.status.facts import Facts


def inputs(
    infd: InferenceDeployment,
    observed: Observed,
    states: Mapping[str, PodState],
    view: View,
    *,
    settled: bool,
    can_wake: bool,
) -> Inputs:
    """states: the pods' latest, which may be newer than what was observed with them."""
    held = None if view.held is None else view.held.get((infd.key.namespace, infd.key.name), 0)
    return Inputs(
        replicas=infd.spec.replicas,
        loads=tuple(_load(pod, states) for pod in ready_pods(observed)),
        held=held,
        settled=settled,
        can_wake=can_wake and bool(view.addresses),
    )


def _load(pod: Object, states: Mapping[str, PodState]) -> Load | None:
    state = states.get(pod["metadata"]["name"])
    return state.report.load if state and state.report else None


def settled(facts: Facts) -> bool:
    """No rollout under way, or one that has failed and is held: that one may sleep too."""
    return facts.rolled_out or facts.deadline_exceeded is not None
