"""Events are told on transitions, each once."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.operator.builders import (
    NOW,
    deployment,
    faulty,
    infd,
    observed,
    pod,
    report,
    state,
    warming,
)
from warmgraph_api.report import Cache, CacheResult, Span
from warmgraph_api.status import Status
from warmgraph_operator.observed import Observed
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.status.compute import happenings, status
from warmgraph_operator.status.facts import Decided

STARTING = observed(pod(ready=False), reports={"tiny-1": warming()})


def after(
    seen: Observed, before: Status | None = None, resource: InferenceDeployment | None = None
) -> Status:
    found = resource or infd()
    with_status = msgspec.structs.replace(found, status=before or Status())
    return status(with_status, seen, Decided(revision="r1"))


def told(before: Status, seen: Observed, **spec: Any) -> list[tuple[bool, str]]:
    now = after(seen, before, infd(**spec) if spec else None)
    return [(h.warning, h.reason) for h in happenings(before, now)]


def test_a_pod_that_becomes_ready_tells_of_its_start_and_its_cache() -> None:
    first = after(STARTING)
    assert told(first, observed(pod())) == [
        (False, "AllReplicasReady"),
        (False, "GraphsCaptured"),
        (False, "GraphCacheHit"),
    ]


def test_nothing_is_told_twice() -> None:
    first = after(observed(pod()), after(STARTING))
    assert told(first, observed(pod())) == []


def test_a_first_start_is_no_finished_rollout() -> None:
    before = after(observed(deployment=None))
    assert told(before, STARTING) == []
    rolling = observed(pod(revision="r0"), deployment=deployment(revision="r1"))
    before = after(rolling, after(observed(pod())))
    assert (False, "CurrentRevision") in told(before, observed(pod()))


def test_a_refusal_names_the_field() -> None:
    refused = Cache(
        result=CacheResult.REFUSED, key="abc", field="driver", message="550.1 here, 545.2 stored"
    )
    seen = observed(pod(), reports={"tiny-1": state(report=report(cache=refused))})
    before = after(STARTING)
    (event,) = [
        h for h in happenings(before, after(seen, before)) if h.reason == "GraphCacheRefused"
    ]
    assert event.warning
    assert event.note == "Pod tiny-1: key field driver differs: 550.1 here, 545.2 stored"


def test_a_damaged_entry_is_told_as_a_warning_with_its_file() -> None:
    damaged = Cache(
        result=CacheResult.REFUSED, key="abc", message="/c/abc/manifest.json is damaged"
    )
    seen = observed(pod(), reports={"tiny-1": state(report=report(cache=damaged))})
    before = after(STARTING)
    now = after(seen, before)
    (event,) = [h for h in happenings(before, now) if h.reason == "GraphCacheRefused"]
    assert event.warning
    assert event.note == "Pod tiny-1: /c/abc/manifest.json is damaged"
    assert (now.cache.result, now.cache.message) == ("Refused", "/c/abc/manifest.json is damaged")


def test_a_hit_tells_how_much_was_restored() -> None:
    hit = Cache(result=CacheResult.HIT, key="abc", message="3 of 4 declared graphs restored")
    seen = observed(pod(), reports={"tiny-1": state(report=report(cache=hit))})
    before = after(STARTING)
    (event,) = [h for h in happenings(before, after(seen, before)) if h.reason == "GraphCacheHit"]
    assert (event.warning, event.note) == (False, "Pod tiny-1: 3 of 4 declared graphs restored")


def test_the_status_names_the_field_that_differs() -> None:
    missed = Cache(
        result=CacheResult.MISS, key="abc", field="driver", message="driver is 1, stored graphs …"
    )
    seen = observed(pod(), reports={"tiny-1": state(report=report(cache=missed))})
    cache = after(seen).cache
    assert (cache.result, cache.key, cache.field) == ("Miss", "abc", "driver")
    assert cache.message.startswith("driver is 1")


def test_a_field_that_the_message_names_is_not_named_twice() -> None:
    missed = Cache(result=CacheResult.MISS, key="abc", field="driver", message="driver is 550.1")
    seen = observed(pod(), reports={"tiny-1": state(report=report(cache=missed))})
    before = after(STARTING)
    (event,) = [h for h in happenings(before, after(seen, before)) if h.reason == "GraphCacheMiss"]
    assert event.note == "Pod tiny-1: driver is 550.1"


def test_a_fault_is_told_once_though_three_conditions_say_it() -> None:
    first = after(observed(pod()), after(STARTING))
    broken = observed(pod(ready=False), reports={"tiny-1": faulty()})
    assert told(first, broken) == [(True, "EngineFault")]


def test_going_to_zero_is_told() -> None:
    first = after(observed(pod()), after(STARTING))
    assert told(first, observed(), replicas=0) == [(False, "ScaledToZero")]


def test_the_cold_start_ends_where_readiness_began() -> None:
    timeline = [
        Span(name="model", start_seconds=0.25, seconds=1.5),
        Span(name="lazy bucket", start_seconds=60.0, seconds=0.5),
    ]
    reported = {"tiny-1": state(report=report(ready_seconds=2.0, timeline=timeline))}
    start = after(observed(pod(), reports=reported)).cold_start
    assert (start.pod, start.revision, start.total_milliseconds) == ("tiny-1", "r1", 2000)
    assert start.pod_ready_milliseconds == 10_000
    assert [(s.name, s.start_milliseconds, s.milliseconds) for s in start.stages] == [
        ("model", 250, 1500)
    ]


def test_cache_graphs_and_start_outlive_the_pod() -> None:
    first = after(observed(pod()))
    asleep = after(observed(), first, infd(replicas=0))
    assert asleep.cold_start == first.cold_start
    assert asleep.cache == first.cache
    assert asleep.graphs == first.graphs


def test_a_stage_that_outlasts_the_readiness_is_no_second_start() -> None:
    def with_stage(seconds: float) -> Observed:
        spans = [Span(name="warm page cache", start_seconds=1.9, seconds=seconds)]
        return observed(pod(), reports={"tiny-1": state(report=report(timeline=spans))})

    first = after(with_stage(0.5))
    second = after(with_stage(4.0), first)
    assert second.cold_start != first.cold_start
    assert happenings(first, second) == []


def test_an_older_pod_that_is_left_over_is_no_news() -> None:
    """The newer one is removed by a scale-down: its start is still the newest."""
    young = state(
        report=report(ready_seconds=1.0, cache=Cache(result=CacheResult.HIT, key="abc")),
        ready_at=NOW.timestamp(),
    )
    old = state(report=report(ready_seconds=9.0, cache=Cache(result=CacheResult.MISS, key="abc")))
    later = pod("tiny-2", created="2026-01-01T11:30:00Z")
    two = infd(replicas=2)
    both = after(observed(pod(), later, reports={"tiny-1": old, "tiny-2": young}), resource=two)
    assert (both.cold_start.pod, both.cache.result) == ("tiny-2", "Hit")
    alone = after(observed(pod(), reports={"tiny-1": old}), both)
    assert alone.cold_start == both.cold_start
    assert alone.cache == both.cache
    assert "GraphsCaptured" not in [h.reason for h in happenings(both, alone)]


def test_of_two_that_start_together_the_one_that_ends_last_is_told_last() -> None:
    first = state(ready_at=NOW.timestamp() - 5)
    second = state(ready_at=NOW.timestamp())
    two = infd(replicas=2)
    pods = (pod(), pod("tiny-2", created="2026-01-01T11:00:01Z"))
    seen = observed(*pods, reports={"tiny-1": second, "tiny-2": first})
    assert after(seen, resource=two).cold_start.pod == "tiny-1"
