"""The way to zero replicas and back: who answers the Service, and how far the Deployment may go.

Going down, the activators are in the Service, and proven to answer, before the last pod goes.
Whenever no pod of its own is ready, they stand in; once one is, they leave. The same holds for a
rollout that must stop the old pods first.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmgraph_api.resource import RolloutStrategy
from warmgraph_operator.observed import Observed, replicas_of, revision_of, template_revision
from warmgraph_operator.resource import InferenceDeployment


@dataclass(frozen=True, kw_only=True)
class Situation:
    wanted: int
    """spec.replicas of the resource."""
    current: int
    """spec.replicas of the Deployment; 0 without one."""
    native_endpoints: int
    """Ready endpoints of pods."""
    replacing: bool
    """A rollout that stops the old pods before it starts new ones is due or under way."""
    activators: tuple[str, ...] | None
    """Addresses of ready activators that know their port; None where there are none at all."""
    standing_in: tuple[str, ...]
    """Addresses in the live activator slice."""
    proven: bool
    """An activator has answered for this deployment on its port."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    replicas: int
    """Of the Deployment."""
    addresses: tuple[str, ...]
    """Of the activator slice; none: no slice."""
    may_replace: bool
    """The template may change now."""
    waiting_for_activator: bool = False
    """Zero is wanted, but nothing would answer there yet."""


def is_replacing(infd: InferenceDeployment, observed: Observed, target: str) -> bool:
    """From the moment a replacement is due until the last old pod is gone: its endpoint is listed
    for a moment after the new template was written."""
    if infd.spec.rollout.strategy is not RolloutStrategy.REPLACE:
        return False
    if replicas_of(observed.deployment) == 0:
        return False
    old = any(revision_of(pod) != target for pod in observed.pods)
    return old or template_revision(observed.deployment) != target


def needs_proof(*, wanted: int, current: int, replacing: bool) -> bool:
    """Whether the next step depends on an activator's answer."""
    return current > 0 and (wanted == 0 or replacing)


def plan(now: Situation) -> Plan:
    """The next step. Taken again after every change, until nothing changes any more."""
    if now.activators is None:
        # Nobody stands in, by configuration: zero is then what was asked for and no more.
        return Plan(replicas=now.wanted, addresses=(), may_replace=True)
    needed = now.wanted == 0 or now.native_endpoints == 0 or now.replacing
    covered = bool(now.standing_in) and now.proven
    replicas = now.wanted
    if now.wanted == 0 and now.current > 0 and not covered:
        replicas = 1
    return Plan(
        replicas=replicas,
        addresses=now.activators if needed else (),
        # With no activator at hand a rollout goes on: it was asked for with its gap.
        may_replace=covered or not now.replacing or not now.activators,
        waiting_for_activator=replicas != now.wanted,
    )
