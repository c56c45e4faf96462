"""Is this pod ready, and is its engine alive? Pure functions of what has been seen.

The engine reports facts, the resource sets the policy, and both meet here and nowhere else.
Readiness asks whether traffic may come; liveness asks whether only a restart can help. A warmup
may take as long as it needs while it moves, so liveness looks at progress, never at age.

All times are seconds of one monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmgraph_api.reasons import Reason
from warmgraph_api.report import (
    WARM_STATES,
    Bucket,
    BucketMode,
    BucketState,
    CheckState,
    Stage,
    WarmupReport,
)
from warmgraph_api.resource import OnCaptureFailure, WarmupPolicy

RECONNECT_GRACE_SECONDS = 1.0
"""One heartbeat: an engine that dropped only its connection is back within it, and a dead one
leaves the endpoints with the next probe."""

HEARTBEAT_LOST_SECONDS = 5.0
"""Five heartbeats: longer than a pause of a loaded node, short against a client's patience."""

HEARTBEAT_DEAD_SECONDS = 30.0
"""No garbage collection, page fault or CPU throttling silences a serving engine this long; its
process hangs, most likely in a device call, and only a restart helps."""

WARMUP_STAGES = frozenset(
    {Stage.STARTING, Stage.LOADING_MODEL, Stage.RESTORING, Stage.CAPTURING, Stage.CHECKING}
)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The resource's `warmup`, as far as a pod's readiness depends on it."""

    warmup: WarmupPolicy
    on_capture_failure: OnCaptureFailure
    known_answer_check: bool
    stall_timeout_seconds: float


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the sidecar has seen of the engine."""

    report: WarmupReport | None = None
    """The last one of the engine's current boot."""
    connected: bool = False
    waiting_since: float
    """Since when there is no engine: the sidecar's start, or the loss of the connection."""
    report_at: float = 0.0
    """When `report` came."""
    progress_at: float = 0.0
    """When the engine's warmup last moved."""
    draining: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one probe, with a reason for programs and a message for people."""

    ok: bool
    reason: Reason
    message: str


def readiness(policy: Policy, seen: Observation, now: float) -> Answer:
    """Whether the pod may get traffic."""
    out = _leaving(seen) or _dead(policy, seen, now)
    if out is not None:
        return out
    if seen.report is None:
        return _no(Reason.STARTING, "the engine has not reported yet")
    # A fault outlives its connection here, though not in liveness: by then the engine that the
    # kubelet asks about is the next one.
    return (
        _broken(seen.report)
        or _silent(seen, seen.report, now)
        or _warmup_failed(policy, seen.report)
        or _warm(policy, seen.report)
    )


def liveness(policy: Policy, seen: Observation, now: float) -> Answer:
    """Whether the engine lives and moves. Not ok means that only a restart can help."""
    if not seen.connected:
        return _absent(policy, now - seen.waiting_since)
    assert seen.report is not None, "an engine counts as connected from its first report"
    return (
        _broken(seen.report)
        or _stalled(policy, seen.report, now - seen.progress_at)
        or _hangs(seen.report, now - seen.report_at)
        or _yes(Reason.STABLE, "the engine reports")
    )


# --- is it there?


def _absent(policy: Policy, gone: float) -> Answer:
    # A lost connection is most often an engine that the kubelet restarts, so the next one gets
    # the same time to report as the first one got.
    if gone > policy.stall_timeout_seconds:
        return _no(Reason.WARMUP_STALLED, f"no engine has reported for {gone:.0f} s")
    return _yes(Reason.STARTING, "waiting for the engine to connect")


def _broken(report: WarmupReport) -> Answer | None:
    failed = report.stage is Stage.FAILED
    if report.fault is not None:
        reason = Reason.WARMUP_FAILED if failed else Reason.ENGINE_FAULT
        return _no(reason, f"{report.fault.reason}: {report.fault.message}")
    if failed:
        return _no(Reason.WARMUP_FAILED, report.message or "the engine gave up its start")
    return None


def _stalled(policy: Policy, report: WarmupReport, still: float) -> Answer | None:
    if report.stage not in WARMUP_STAGES or still <= policy.stall_timeout_seconds:
        return None
    where = report.stage.value + (f" ({report.message})" if report.message else "")
    return _no(Reason.WARMUP_STALLED, f"no progress for {still:.0f} s in {where}")


def _hangs(report: WarmupReport, silent: float) -> Answer | None:
    # During the warmup a silent engine is one that makes no progress; that bound is the policy's.
    if report.stage in WARMUP_STAGES or silent <= HEARTBEAT_DEAD_SECONDS:
        return None
    return _no(Reason.ENGINE_FAULT, f"the engine hangs: no report for {silent:.0f} s")


def _leaving(seen: Observation) -> Answer | None:
    if seen.draining or (seen.report and seen.report.stage is Stage.DRAINING):
        return _no(Reason.DRAINING, "draining: no new requests, those in flight are finished")
    return None


def _dead(policy: Policy, seen: Observation, now: float) -> Answer | None:
    alive = liveness(policy, seen, now)
    return None if alive.ok else alive


def _silent(seen: Observation, report: WarmupReport, now: float) -> Answer | None:
    gone, silent = now - seen.waiting_since, now - seen.report_at
    if not seen.connected and gone > RECONNECT_GRACE_SECONDS:
        return _no(Reason.ENGINE_FAULT, f"the engine's connection was lost {gone:.0f} s ago")
    # A warmup that is busy importing may say nothing for a while; it is unready anyway, and its
    # own stage says more than a fault would.
    if report.stage not in WARMUP_STAGES and silent > HEARTBEAT_LOST_SECONDS:
        return _no(Reason.ENGINE_FAULT, f"the engine has not reported for {silent:.0f} s")
    return None


# --- is it warm?


def _warmup_failed(policy: Policy, report: WarmupReport) -> Answer | None:
    if report.check.state is CheckState.FAILED:
        details = report.check.message or "no details"
        return _no(Reason.WARMUP_FAILED, f"known-answer check failed: {details}")
    failed = _failed(report)
    if failed and _requires_every_bucket(policy):
        return _no(Reason.WARMUP_FAILED, f"capture failed: {_names(failed)}")
    return None


def _warm(policy: Policy, report: WarmupReport) -> Answer:
    if report.stage is not Stage.SERVING:
        return _warming_up(report)
    if policy.warmup is WarmupPolicy.MODEL_LOADED:
        return _model_loaded(report)
    return _graphs_ready(policy, report)


def _requires_every_bucket(policy: Policy) -> bool:
    return (
        policy.warmup is WarmupPolicy.REQUIRE_EAGER
        and policy.on_capture_failure is OnCaptureFailure.FAIL
    )


def _warming_up(report: WarmupReport) -> Answer:
    early = report.stage in {Stage.STARTING, Stage.LOADING_MODEL}
    detail = f": {report.message}" if report.message else ""
    return _no(
        Reason.STARTING if early else Reason.WARMING_UP,
        f"{report.stage.value}, {_count(report)}{detail}",
    )


def _model_loaded(report: WarmupReport) -> Answer:
    """Buckets don't count, but the reason says how far they are."""
    eager = _eager(report)
    if not eager:
        return _yes(Reason.NO_EAGER_BUCKETS, "the model is loaded and no bucket is eager")
    if all(b.state in WARM_STATES for b in eager):
        return _yes(Reason.GRAPHS_CAPTURED, _count(report))
    return _yes(Reason.WARMING_UP, f"ready by policy ModelLoaded; {_count(report)}")


def _graphs_ready(policy: Policy, report: WarmupReport) -> Answer:
    eager, failed = _eager(report), _failed(report)
    if not eager:
        return _yes(Reason.NO_EAGER_BUCKETS, "no bucket is eager: ready by declaration")
    settled = WARM_STATES | {BucketState.FALLBACK}
    missing = [b for b in eager if b.state not in settled]
    if missing:
        return _no(Reason.WARMING_UP, f"{_count(report)}, missing {_names(missing)}")
    # With every eager bucket in fallback there is no graph to compare with eager execution.
    if policy.known_answer_check and len(failed) < len(eager):
        unchecked = _unchecked(report)
        if unchecked is not None:
            return unchecked
    if failed:
        return _yes(Reason.DEGRADED_BUCKETS, f"{_count(report)}, in fallback: {_names(failed)}")
    return _yes(Reason.GRAPHS_CAPTURED, _count(report))


def _unchecked(report: WarmupReport) -> Answer | None:
    if report.check.state is CheckState.PENDING:
        return _no(Reason.WARMING_UP, f"{_count(report)}, known-answer check pending")
    if report.check.state is CheckState.SKIPPED:
        return _no(
            Reason.WARMUP_FAILED,
            "the engine skipped the known-answer check that the policy asks for",
        )
    return None


def _failed(report: WarmupReport) -> list[Bucket]:
    return [b for b in _eager(report) if b.state is BucketState.FALLBACK]


def _eager(report: WarmupReport) -> list[Bucket]:
    return [b for b in report.buckets if b.mode is BucketMode.EAGER]


def _count(report: WarmupReport) -> str:
    eager = _eager(report)
    warm = sum(b.state in WARM_STATES for b in eager)
    return f"eager buckets {warm}/{len(eager)}"


def _names(buckets: list[Bucket]) -> str:
    """For a message: the first three, with the reason where there is one."""
    texts = [f"{b.kind} {b.size}" + (f" ({b.reason})" if b.reason else "") for b in buckets]
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


def _yes(reason: Reason, message: str) -> Answer:
    return Answer(ok=True, reason=reason, message=message)


def _no(reason: Reason, message: str) -> Answer:
    return Answer(ok=False, reason=reason, message=message)
