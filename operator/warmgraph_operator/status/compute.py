"""The whole status from the facts, and the events between two of them."""

from __future__ import annotations

from typing import NamedTuple

from warmgraph_api.reasons import ConditionType, Reason
from warmgraph_api.report import CacheResult
from warmgraph_api.status import ActivatorStatus, ColdStart, Condition, Status
from warmgraph_operator.desired.network import url
from warmgraph_operator.observed import Observed
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.status import summary
from warmgraph_operator.status.conditions import conditions
from warmgraph_operator.status.facts import Decided, Facts, gather


def status(infd: InferenceDeployment, observed: Observed, decided: Decided) -> Status:
    """Equal to the one before as long as nothing happened."""
    facts = gather(infd, observed, decided)
    return Status(
        observed_generation=infd.metadata.generation,
        replicas=len(facts.live),
        ready_replicas=len(facts.ready),
        updated_replicas=len(facts.updated),
        selector=infd.selector,
        url=url(infd),
        current_revision=_current_revision(facts),
        updated_revision=decided.revision,
        graphs=summary.graphs(facts),
        cache=summary.cache(facts),
        cold_start=summary.cold_start(facts),
        activator=ActivatorStatus(port=decided.port),
        conditions=conditions(facts),
    )


def _current_revision(facts: Facts) -> str:
    """The last one that became fully available."""
    available = facts.rolled_out and facts.updated_ready >= max(facts.wanted, 1)
    return facts.target if available else facts.infd.status.current_revision


class Happening(NamedTuple):
    """A Kubernetes event to be."""

    warning: bool
    reason: Reason
    note: str


_CACHE_REASONS = {
    CacheResult.HIT: Reason.CACHE_HIT,
    CacheResult.MISS: Reason.CACHE_MISS,
    CacheResult.REFUSED: Reason.CACHE_REFUSED,
}

MUST_ACT = frozenset(
    {
        Reason.NO_READY_REPLICA,
        Reason.IMAGE_PULL_FAILED,
        Reason.ENGINE_CRASH_LOOPING,
        Reason.OUT_OF_MEMORY,
        Reason.UNSCHEDULABLE,
        Reason.STORAGE_CLASS_MISSING,
        Reason.CLAIM_PENDING,
        Reason.CLAIM_MISSING,
        Reason.POD_REJECTED,
        Reason.WARMUP_STALLED,
        Reason.WARMUP_FAILED,
        Reason.ENGINE_FAULT,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        Reason.ROLLED_BACK,
        Reason.CONFLICTING_AUTOSCALER,
        Reason.NAME_CONFLICT,
        Reason.APPLY_FAILED,
        Reason.DEGRADED_BUCKETS,
    }
)


def happenings(before: Status, after: Status) -> list[Happening]:
    """What changed from one status to the next, each told once."""
    told: list[Happening] = []
    previous = {entry.type: entry for entry in before.conditions}
    for now in after.conditions:
        then = previous.get(now.type)
        if then and (then.status, then.reason) == (now.status, now.reason):
            continue
        happening = _transition(then, now)
        if happening and all(happening.reason != other.reason for other in told):
            told.append(happening)
    return told + _starts(before, after)


def _transition(then: Condition | None, now: Condition) -> Happening | None:
    reason = Reason(now.reason)
    if reason in MUST_ACT:
        return Happening(True, reason, now.message)
    was_true = then is not None and then.status == "True"
    if now.type == ConditionType.READY and now.status == "True":
        return Happening(False, reason, now.message)
    if now.type == ConditionType.UP_TO_DATE:
        if now.status == "True" and then is not None and then.reason != Reason.STARTING:
            return Happening(False, reason, f"every pod runs {now.message}")
        if now.status == "False" and was_true:
            return Happening(False, reason, now.message)
    if now.type == ConditionType.PROGRESSING and reason in (Reason.WAKING, Reason.PAUSED):
        return Happening(False, reason, now.message)
    return None


def completed_start(before: Status, after: Status) -> ColdStart | None:
    """The start that was completed in between. A stage that outlasts the readiness, and is
    measured on, is no other start."""

    def identity(start: ColdStart) -> tuple[str, str, int]:
        return start.pod, start.completion_time, start.total_milliseconds

    is_new = identity(after.cold_start) != identity(before.cold_start)
    return after.cold_start if after.cold_start.pod and is_new else None


def _starts(before: Status, after: Status) -> list[Happening]:
    """A pod finished its start: how long it took and how its cache lookup went."""
    start = completed_start(before, after)
    if start is None:
        return []
    seconds = start.total_milliseconds / 1000
    told = [
        Happening(
            False,
            Reason.GRAPHS_CAPTURED,
            f"Pod {start.pod} is warm after {seconds:.1f} s ({after.graphs.summary})",
        )
    ]
    result = after.cache
    reason = _CACHE_REASONS.get(CacheResult(result.result)) if result.result else None
    if reason:
        unsaid = result.field and result.field not in result.message
        field = f"key field {result.field} differs: " if unsaid else ""
        note = f"Pod {start.pod}: {field}{result.message or f'key {result.key[:12]}'}"
        told.append(Happening(reason is Reason.CACHE_REFUSED, reason, note))
    return told
