"""The five conditions, each a function of the facts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from warmgraph_api.reasons import ConditionType, Reason
from warmgraph_api.report import (
    WARM_STATES,
    Bucket,
    BucketMode,
    BucketState,
    PodState,
    WarmupReport,
)
from warmgraph_api.status import Condition
from warmgraph_operator.status.facts import Facts


class Verdict(NamedTuple):
    status: str
    reason: Reason
    message: str


def _true(reason: Reason, message: str) -> Verdict:
    return Verdict("True", reason, message)


def _false(reason: Reason, message: str) -> Verdict:
    return Verdict("False", reason, message)


def conditions(facts: Facts) -> list[Condition]:
    """In a fixed order. `lastTransitionTime` moves only where the status does."""
    verdicts = {
        ConditionType.READY: ready(facts),
        ConditionType.SERVING: serving(facts),
        ConditionType.WARM: warm(facts),
        ConditionType.UP_TO_DATE: up_to_date(facts),
        ConditionType.PROGRESSING: progressing(facts),
    }
    before = {entry.type: entry for entry in facts.infd.status.conditions}
    now = facts.observed.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        _condition(facts, kind, verdict, before.get(kind), now)
        for kind, verdict in verdicts.items()
    ]


def _condition(
    facts: Facts, kind: ConditionType, verdict: Verdict, before: Condition | None, now: str
) -> Condition:
    same = before is not None and before.status == verdict.status
    message = verdict.message
    if before and same and before.reason == verdict.reason and _same(before.message, message):
        message = before.message
    return Condition(
        type=kind,
        status=verdict.status,
        reason=verdict.reason,
        message=message,
        observed_generation=facts.infd.metadata.generation,
        last_transition_time=before.last_transition_time if before and same else now,
    )


_SECONDS = re.compile(r"\d+(\.\d+)? s\b")


def _same(one: str, other: str) -> bool:
    """Equal but for how long something has lasted: that changes every second and says nothing."""
    return _SECONDS.sub("s", one) == _SECONDS.sub("s", other)


# --- Ready


def ready(facts: Facts) -> Verdict:
    """It does what was asked of it, at the current spec."""
    return _blocked(facts) or _asleep(facts) or _unwell(facts) or _on_its_way(facts)


def _blocked(facts: Facts) -> Verdict | None:
    """Not written as asked."""
    if facts.decided.problems:
        return _false(*facts.decided.problems[0])
    if facts.decided.failed_revision:
        return _false(Reason.ROLLED_BACK, facts.decided.failed_revision)
    return None


def _asleep(facts: Facts) -> Verdict | None:
    if not facts.at_zero:
        return None
    if facts.decided.waiting_for_activator:
        return _false(
            Reason.DRAINING, "one pod stays until every activator answers for this deployment"
        )
    return _true(Reason.SCALED_TO_ZERO, _at_zero(facts))


def _unwell(facts: Facts) -> Verdict | None:
    problem = facts.problem or facts.deadline_exceeded or facts.decided.rival
    return _false(*problem) if problem else None


def _on_its_way(facts: Facts) -> Verdict:
    if not facts.rolled_out:
        return _false(*_rolling(facts))
    if facts.updated_ready == 0:
        return _false(*_starting(facts))
    if facts.updated_ready < facts.wanted:
        return _true(Reason.PARTIALLY_READY, _count(facts))
    return _true(Reason.ALL_REPLICAS_READY, _count(facts))


def _at_zero(facts: Facts) -> str:
    if not facts.decided.activators_configured:
        return "no replica is wanted; no activators are installed, so requests fail until scaled up"
    return "no replica is wanted; the next request wakes it"


def _count(facts: Facts) -> str:
    return f"{facts.updated_ready} of {facts.wanted} replicas ready"


def _rolling(facts: Facts) -> tuple[Reason, str]:
    if facts.infd.spec.paused:
        return Reason.PAUSED, "the spec asks for another revision, but the resource is paused"
    if facts.observed.deployment is None:
        return Reason.STARTING, "the Deployment is being created"
    done = f"{facts.updated_ready} of {facts.wanted} replicas run revision {facts.target}"
    return _rollout(facts), done


def _rollout(facts: Facts) -> Reason:
    return Reason.ROLLING_OUT if facts.infd.status.current_revision else Reason.STARTING


def _starting(facts: Facts) -> tuple[Reason, str]:
    """No pod is ready and nothing is wrong: how far is it?"""
    if not facts.live:
        reason = Reason.WAKING if facts.waking else Reason.STARTING
        return reason, "the first pod is being created"
    states = [state for pod in facts.live if (state := facts.state(pod))]
    if any(_is_lost(state) for state in states):
        return Reason.NO_READY_REPLICA, _lost(states)
    message = next((s.message for s in reversed(states) if s.message), "the pod is starting")
    if facts.waking:
        return Reason.WAKING, message
    warming = any(state.reason == Reason.WARMING_UP for state in states)
    return (Reason.WARMING_UP if warming else Reason.STARTING), message


def _is_lost(state: PodState) -> bool:
    """It was ready and is not any more, for another reason than that it was told to stop."""
    return state.ready_at is not None and not state.ready and not state.draining


def _lost(states: list[PodState]) -> str:
    return next(
        (f"{s.reason}: {s.message}" for s in reversed(states) if not s.ready),
        "no pod answers any more",
    )


# --- Serving


def serving(facts: Facts) -> Verdict:
    """Some revision answers. Gateways and callers look at this one."""
    if facts.ready:
        enough = len(facts.ready) >= facts.wanted
        reason = Reason.ALL_REPLICAS_READY if enough else Reason.PARTIALLY_READY
        return _true(reason, f"pods that answer: {len(facts.ready)}")
    if facts.at_zero and facts.decided.standing_in:
        return _true(Reason.SCALED_TO_ZERO, "activators hold requests and wake it")
    if facts.at_zero:
        return _false(Reason.SCALED_TO_ZERO, _no_one(facts))
    if facts.waking:
        return _true(Reason.WAKING, "activators hold requests until the first pod is ready")
    if facts.problem:
        return _false(*facts.problem)
    return _false(*_starting(facts))


def _no_one(facts: Facts) -> str:
    if not facts.decided.activators_configured:
        return "no replica and no activators: requests fail"
    return "no activator is ready: requests fail until one is"


# --- Warm


def warm(facts: Facts) -> Verdict:
    """Every pod of the current revision has its eager buckets."""
    if not facts.updated:
        if facts.at_zero:
            return _false(Reason.SCALED_TO_ZERO, "no pod runs")
        return _false(Reason.STARTING, "no pod of this revision runs yet")
    reports: list[WarmupReport] = []
    for pod in facts.updated:
        state = facts.state(pod)
        if state is None or state.report is None:
            return _unknown(facts)
        if not state.ready and state.report.ready_seconds is None and not state.report.buckets:
            return _false(Reason.WARMING_UP, "the engine does not know its buckets yet")
        reports.append(state.report)
    return _graphs(b for report in reports for b in report.buckets if b.mode is BucketMode.EAGER)


def _graphs(buckets: Iterable[Bucket]) -> Verdict:
    eager = list(buckets)
    failed = [b for b in eager if b.state is BucketState.FALLBACK]
    missing = [b for b in eager if b.state not in {*WARM_STATES, BucketState.FALLBACK}]
    if missing:
        return _false(Reason.WARMING_UP, f"missing {_names(missing)}")
    if failed:
        return _false(Reason.DEGRADED_BUCKETS, f"without a graph, run eagerly: {_names(failed)}")
    if not eager:
        return _true(Reason.NO_EAGER_BUCKETS, "no bucket is eager")
    return _true(Reason.GRAPHS_CAPTURED, "every eager bucket has its graph")


def _unknown(facts: Facts) -> Verdict:
    """A pod that does not answer just now. A ready pod is asked again before anyone is told."""
    before = next((c for c in facts.infd.status.conditions if c.type == ConditionType.WARM), None)
    all_ready = len(facts.updated) == facts.updated_ready
    if before and all_ready and before.status != "Unknown":
        return Verdict(before.status, Reason(before.reason), before.message)
    if all_ready:
        return Verdict(
            "Unknown", Reason.STARTING, "a ready pod's sidecar does not answer on port 8081"
        )
    return _false(Reason.STARTING, "a pod has not reported yet")


def _names(buckets: Iterable[Bucket]) -> str:
    names = sorted({(b.kind.value, b.size): b for b in buckets}.items())
    texts = [f"{kind} {size}" + (f" ({b.reason})" if b.reason else "") for (kind, size), b in names]
    more = f" and {len(texts) - 4} more" if len(texts) > 4 else ""
    return ", ".join(texts[:4]) + more


# --- UpToDate


def up_to_date(facts: Facts) -> Verdict:
    """Every pod is of the current revision, and that one is known to run: a pod that no node takes
    is no proof of it."""
    if facts.decided.failed_revision:
        return _false(Reason.ROLLED_BACK, facts.decided.failed_revision)
    if facts.observed.deployment is None and facts.decided.problems:
        return _false(*facts.decided.problems[0])
    states = map(facts.state, facts.updated)
    was_ready = any(state is not None and state.ready_at is not None for state in states)
    has_run = facts.updated_ready > 0 or was_ready or facts.was_available
    if facts.rolled_out and (has_run or facts.at_zero):
        return _true(Reason.CURRENT_REVISION, f"revision {facts.target}")
    if facts.deadline_exceeded:
        return _false(*facts.deadline_exceeded)
    if facts.rolled_out:
        return _false(_rollout(facts), f"no pod of revision {facts.target} has been ready yet")
    return _false(*_rolling(facts))


# --- Progressing


def progressing(facts: Facts) -> Verdict:
    """Something is on its way."""
    return _halted(facts) or _moving(facts) or _false(Reason.STABLE, "nothing is under way")


def _halted(facts: Facts) -> Verdict | None:
    if facts.decided.problems:
        return _false(*facts.decided.problems[0])
    if facts.infd.spec.paused:
        return _false(Reason.PAUSED, "nothing but status is written while spec.paused is true")
    return _false(*facts.deadline_exceeded) if facts.deadline_exceeded else None


def _moving(facts: Facts) -> Verdict | None:
    if not facts.rolled_out:
        return _true(*_rolling(facts))
    if facts.at_zero:
        draining = facts.live or facts.decided.waiting_for_activator
        return _true(Reason.DRAINING, "the last pods finish what they have") if draining else None
    if facts.updated_ready == 0:
        return _true(*(facts.problem or _starting(facts)))
    if facts.updated_ready < facts.wanted:
        return _true(Reason.SCALING, _count(facts))
    if len(facts.live) > facts.wanted:
        return _true(Reason.SCALING, f"{len(facts.live)} pods, {facts.wanted} wanted")
    return None
