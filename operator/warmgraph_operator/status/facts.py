"""The facts that every condition is made of, gathered once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warmgraph_api.reasons import Reason
from warmgraph_api.report import PodState
from warmgraph_api.resource import RolloutStrategy
from warmgraph_operator.claims import diagnose_claims
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import (
    Observed,
    condition,
    live_pods,
    ready_pods,
    replicas_of,
    revision_of,
    template_revision,
)
from warmgraph_operator.pods import diagnose, first_problem
from warmgraph_operator.problem import Problem
from warmgraph_operator.resource import InferenceDeployment


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What this pass decided and met, beside what it observed."""

    revision: str
    """Of the current spec."""
    failed_revision: str = ""
    """Message about the current spec's revision that was rolled back; empty otherwise."""
    rollback_to: str = ""
    """The revision that runs in its place."""
    port: int = 0
    standing_in: bool = False
    """The activators are in the Service."""
    activators_configured: bool = False
    waiting_for_activator: bool = False
    problems: Sequence[Problem] = ()
    """Objects that could not be written."""
    rival: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    infd: InferenceDeployment
    observed: Observed
    decided: Decided
    wanted: int
    target: str
    """Revision that the pods should run: the spec's, or the one rolled back to."""
    live: tuple[Object, ...]
    ready: tuple[Object, ...]
    updated: tuple[Object, ...]
    """Live pods of the target revision."""
    updated_ready: int
    rolled_out: bool
    """Every pod, and the template for the next one, is of the target revision."""
    problem: Problem | None
    """Why a pod is missing or not ready."""
    deadline_exceeded: Problem | None

    def state(self, pod: Object) -> PodState | None:
        return self.observed.reports.get(pod["metadata"]["name"])

    @property
    def at_zero(self) -> bool:
        return self.wanted == 0

    @property
    def was_available(self) -> bool:
        """This revision has served before: what happens now is a wake-up, not a first start."""
        return bool(self.target) and self.infd.status.current_revision == self.target

    @property
    def waking(self) -> bool:
        """Requests are held while a known-good revision starts."""
        return self.decided.standing_in and self.was_available and self.problem is None


def gather(infd: InferenceDeployment, observed: Observed, decided: Decided) -> Facts:
    target = decided.rollback_to or decided.revision
    live, ready = live_pods(observed), ready_pods(observed)
    updated = tuple(pod for pod in live if revision_of(pod) == target)
    template_is_current = template_revision(observed.deployment) == target
    problem = _problem(infd, observed, updated, live)
    return Facts(
        infd=infd,
        observed=observed,
        decided=decided,
        wanted=infd.spec.replicas,
        target=target,
        live=live,
        ready=ready,
        updated=updated,
        updated_ready=sum(revision_of(pod) == target for pod in ready),
        rolled_out=template_is_current
        and status_is_current(observed.deployment)
        and len(updated) == len(live)
        # With no pod at all, as in the middle of a replacement, only one that has run before is.
        and (bool(updated) or infd.spec.replicas == 0 or infd.status.current_revision == target),
        problem=problem,
        deadline_exceeded=deadline(observed, target),
    )


def status_is_current(deployment: Object | None) -> bool:
    """The Deployment's controller has seen the last change of its spec."""
    if deployment is None:
        return False
    seen = (deployment.get("status") or {}).get("observedGeneration", 0)
    return bool(seen >= deployment["metadata"].get("generation", 0))


def _problem(
    infd: InferenceDeployment,
    observed: Observed,
    updated: tuple[Object, ...],
    live: tuple[Object, ...],
) -> Problem | None:
    """What keeps a pod from serving, the nearest cause first."""
    if not live and replicas_of(observed.deployment) == 0:
        return None
    everyone_ready = len(ready_pods(observed)) == len(live) >= replicas_of(observed.deployment)
    claims = None if everyone_ready else diagnose_claims(infd, observed)
    old = tuple(pod for pod in live if pod not in updated)
    new = first_problem(updated, observed.reports, observed.warnings)
    if new and new.reason is Reason.UNSCHEDULABLE and old:
        new = _no_room(infd, new)
    return (
        claims
        or new
        or _rejected(observed.deployment)
        or first_problem(old, observed.reports, observed.warnings)
    )


def _no_room(infd: InferenceDeployment, problem: Problem) -> Problem:
    """The new pod may wait for ever for what the old one holds, such as the only GPU."""
    if infd.spec.rollout.strategy is not RolloutStrategy.SURGE:
        return problem
    hint = "if it needs what the old pods hold, rollout.strategy Replace stops them first"
    return Problem.of(problem.reason, f"{problem.message} ({hint})")


def _rejected(deployment: Object | None) -> Problem | None:
    """Pods that the API server did not let in: a quota, an admission policy, a bad template."""
    entry = condition(deployment, "ReplicaFailure")
    if entry and entry["status"] == "True":
        return Problem.of(
            Reason.POD_REJECTED, f"pods cannot be created: {entry.get('message', '')}"
        )
    return None


def deadline(observed: Observed, target: str) -> Problem | None:
    """The rollout to this revision has not moved for its progress deadline. Kubernetes counts
    only pods that become ready as progress; a warmup that moves is progress too."""
    if template_revision(observed.deployment) != target:
        return None
    entry = condition(observed.deployment, "Progressing")
    if not entry or entry.get("reason") != "ProgressDeadlineExceeded":
        return None
    updated = (pod for pod in live_pods(observed) if revision_of(pod) == target)
    if any(_warms_up(pod, observed) for pod in updated):
        return None
    return Problem.of(
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        f"revision {target} did not become ready within rollout.progressDeadlineSeconds",
    )


def _warms_up(pod: Object, observed: Observed) -> bool:
    """Starting for the first time and not stalled: its sidecar would say so."""
    name = pod["metadata"]["name"]
    state = observed.reports.get(name)
    if state is None or state.ready or state.engine_restarts > 0:
        return False
    return diagnose(pod, state) is None and state.engine_connected
