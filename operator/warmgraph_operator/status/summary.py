"""Graph counts, cache result and cold start, from the pods' reports."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from warmgraph_api.report import (
    WARM_STATES,
    Bucket,
    BucketMode,
    BucketState,
    CacheResult,
    WarmupReport,
)
from warmgraph_api.status import CacheStatus, ColdStart, ColdStartSpan, GraphCount
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import revision_of
from warmgraph_operator.status.facts import Facts


def graphs(facts: Facts) -> GraphCount:
    """Of the pod of the current revision that has most graphs; the last known at zero."""
    reports = [report for _, report in _reports(facts) if report.buckets]
    if not reports:
        known = facts.infd.status.updated_revision == facts.target
        return facts.infd.status.graphs if known else GraphCount()
    return max((_count(report.buckets) for report in reports), key=_captured)


def _captured(count: GraphCount) -> tuple[int, int]:
    return count.eager_captured, count.lazy_captured


def _count(buckets: Iterable[Bucket]) -> GraphCount:
    eager = [b for b in buckets if b.mode is BucketMode.EAGER]
    lazy = [b for b in buckets if b.mode is BucketMode.LAZY]
    eager_done = sum(b.state in WARM_STATES for b in eager)
    lazy_done = sum(b.state in WARM_STATES for b in lazy)
    failed = sum(b.state is BucketState.FALLBACK for b in (*eager, *lazy))
    summary = f"eager {eager_done}/{len(eager)}, lazy {lazy_done}/{len(lazy)}"
    return GraphCount(
        eager_captured=eager_done,
        eager_total=len(eager),
        lazy_captured=lazy_done,
        lazy_total=len(lazy),
        failed=failed,
        summary=summary + (f", failed {failed}" if failed else ""),
    )


def cache(facts: Facts) -> CacheStatus:
    """How the newest pod's lookup went, from the moment it is known."""
    for pod, report in reversed(_reports(facts)):
        if report.cache.result is not CacheResult.PENDING and _is_news(facts, pod):
            found = report.cache
            return CacheStatus(
                result=found.result, key=found.key, field=found.field, message=found.message
            )
    return facts.infd.status.cache


def cold_start(facts: Facts) -> ColdStart:
    """The newest completed start of a pod. What happened after it is not part of it."""
    for pod, report in sorted(_reports(facts), key=lambda pair: _completed(facts, pair[0]))[::-1]:
        completed = _completed(facts, pod)
        if report.ready_seconds is None or not completed or not _is_news(facts, pod):
            continue
        return ColdStart(
            pod=pod["metadata"]["name"],
            revision=revision_of(pod),
            completion_time=completed,
            total_milliseconds=round(report.ready_seconds * 1000),
            pod_ready_milliseconds=_pod_ready_milliseconds(pod, completed),
            stages=[
                ColdStartSpan(
                    name=span.name,
                    start_milliseconds=round(span.start_seconds * 1000),
                    milliseconds=round(span.seconds * 1000),
                )
                for span in report.timeline
                if span.start_seconds < report.ready_seconds
            ],
        )
    return facts.infd.status.cold_start


def _completed(facts: Facts, pod: Object) -> str:
    """When the pod first became ready, or empty. Of equal form, so that text compares as time."""
    state = facts.state(pod)
    if state is None or state.ready_at is None:
        return ""
    moment = datetime.fromtimestamp(state.ready_at, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_news(facts: Facts, pod: Object) -> bool:
    """Not an older pod that is merely left over where a newer one was removed."""
    completed = _completed(facts, pod)
    return not completed or completed >= facts.infd.status.cold_start.completion_time


def _pod_ready_milliseconds(pod: Object, completed: str) -> int:
    """From the pod's creation to its first readiness."""
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    took = datetime.fromisoformat(completed) - created
    return max(0, round(took.total_seconds() * 1000))


def _reports(facts: Facts) -> list[tuple[Object, WarmupReport]]:
    """Of the current revision's pods, oldest first."""
    pairs = ((pod, facts.state(pod)) for pod in facts.updated)
    return [(pod, state.report) for pod, state in pairs if state and state.report]
