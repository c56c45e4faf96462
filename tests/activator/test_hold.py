"""Which pod a request gets, and who waits; without sockets and on fake time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.activator.objects import condition, deployment, model_pod, resource
from warmgraph_activator.hold import Hold
from warmgraph_activator.objects import Deployment, Pod
from warmgraph_activator.pods import Lease
from warmgraph_activator.refusal import Outcome, Refusal
from warmgraph_api.reasons import Reason


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def hold(clock: Clock) -> Hold:
    """One deployment at one replica, two sequences a batch: four requests a pod."""
    value = resource("llm", replicas=1, queueLimit=10)
    value["spec"]["engine"]["maxBatchSize"] = 2
    return Hold(msgspec.convert(value, Deployment), clock=clock)


def waiting(hold: Hold) -> asyncio.Future[Lease]:
    place = hold.enter()
    hold.join(place)
    return place.granted


# --- which pod


def test_a_pod_is_ready_by_its_sidecar_before_its_condition(hold: Hold) -> None:
    hold.pods.put(model_pod("a"))
    assert hold.direct() is None
    hold.pods.on_verdict("a", ready=True, message="")
    assert hold.direct() is not None


def test_a_draining_pod_is_out_before_its_condition(hold: Hold) -> None:
    hold.pods.put(model_pod("a", ready=True))
    hold.pods.on_verdict("a", ready=False, message="Draining")
    assert hold.direct() is None


def test_an_old_answer_gives_way_to_the_condition(hold: Hold, clock: Clock) -> None:
    hold.pods.put(model_pod("a", ready=True))
    hold.pods.on_verdict("a", ready=False, message="")
    clock.now += 3.1
    assert hold.direct() is not None


@pytest.mark.parametrize(
    "gone",
    [
        model_pod("a", ready=True, deletionTimestamp="2026-01-01T00:00:00Z"),
        model_pod("a", "", ready=True),
    ],
)
def test_a_pod_that_ends_or_has_no_address_gets_nothing(hold: Hold, gone: Pod) -> None:
    hold.pods.put(gone)
    hold.pods.on_verdict("a", ready=True, message="")
    assert hold.direct() is None
    assert hold.pods.to_ask() == []


def test_the_pod_with_the_fewest_requests_is_next(hold: Hold) -> None:
    for name, ip in (("a", "10.0.0.1"), ("b", "10.0.0.2")):
        hold.pods.put(model_pod(name, ip, ready=True))
    leases = [hold.direct() for _ in range(8)]
    assert [lease.pod for lease in leases if lease] == ["a", "b"] * 4
    assert hold.direct() is None, "both are full"


async def test_a_released_slot_goes_to_the_first_in_line(hold: Hold) -> None:
    hold.pods.put(model_pod("a", ready=True))
    leases = [hold.direct() for _ in range(4)]
    first, second = waiting(hold), waiting(hold)
    assert leases[0] is not None
    leases[0].release()
    leases[0].release()
    assert (first.done(), second.done()) == (True, False), "released once, whatever happens"


async def test_nobody_overtakes_those_who_wait(hold: Hold) -> None:
    first = waiting(hold)
    hold.pods.put(model_pod("a", ready=True))
    assert first.done()
    lease, *_ = [hold.direct() for _ in range(3)]
    second = waiting(hold)
    assert not second.done()
    assert hold.direct() is None
    assert lease is not None
    lease.release()
    assert second.done()


def test_a_pod_that_refused_is_passed_over_for_a_moment(hold: Hold, clock: Clock) -> None:
    hold.pods.put(model_pod("a", "10.0.0.1", ready=True))
    hold.pods.put(model_pod("b", "10.0.0.2", ready=True))
    lease = hold.direct()
    assert lease is not None
    lease.on_refused()
    lease.release()
    assert {hold.direct().pod for _ in range(3)} == {"b"}  # type: ignore[union-attr]
    clock.now += 0.2
    assert hold.direct().pod == "a"  # type: ignore[union-attr]


def test_a_pod_of_the_same_name_at_another_address_starts_unknown(hold: Hold) -> None:
    hold.pods.put(model_pod("a", "10.0.0.1"))
    hold.pods.on_verdict("a", ready=True, message="")
    hold.pods.put(model_pod("a", "10.0.0.2"))
    assert hold.direct() is None


async def test_a_larger_batch_lets_more_in_at_once(hold: Hold) -> None:
    hold.pods.put(model_pod("a", ready=True))
    places = [waiting(hold) for _ in range(6)]
    assert sum(p.done() for p in places) == 4
    value = resource("llm", replicas=1)
    value["spec"]["engine"]["maxBatchSize"] = 3
    hold.update(msgspec.convert(value, Deployment))
    assert sum(p.done() for p in places) == 6


# --- who waits


async def test_the_place_of_one_who_left_just_as_it_was_granted_is_free(hold: Hold) -> None:
    place = hold.enter()
    with place:
        hold.join(place)
        hold.pods.put(model_pod("a", ready=True))
        assert place.granted.done()
    assert (hold.line.held, hold.pods.in_flight) == (0, 0)


async def test_one_whose_pod_refused_waits_again_before_all_others(hold: Hold) -> None:
    hold.pods.put(model_pod("a", "10.0.0.1", ready=True))
    first = hold.enter()
    hold.join(first)
    lease = await first.wait(1)
    assert lease is not None
    assert hold.line.held == 0
    lease.on_refused()
    second = waiting(hold)
    hold.rejoin(first)
    lease.release()
    assert hold.line.held == 2
    hold.pods.put(model_pod("b", "10.0.0.2"))
    assert not first.granted.done()
    hold.pods.max_batch_size = 1
    hold.pods.on_verdict("b", ready=True, message="")
    assert first.granted.done()
    assert second.done(), "two slots for a batch of one"


async def test_one_whose_pod_refused_is_told_when_all_is_lost(hold: Hold) -> None:
    hold.pods.put(model_pod("a", ready=True))
    place = hold.enter()
    hold.join(place)
    assert await place.wait(1) is not None
    hold.close(Refusal(Outcome.SHUTTING_DOWN, "bye"))
    with pytest.raises(Refusal, match="bye"):
        hold.rejoin(place)


async def test_one_whose_pod_refused_gets_it_later_also_where_sidecars_are_mute(
    hold: Hold, clock: Clock
) -> None:
    hold.pods.put(model_pod("a", ready=True))
    place = hold.enter()
    hold.join(place)
    lease = await place.wait(1)
    assert lease is not None
    lease.on_refused()
    hold.rejoin(place)
    lease.release()
    assert not place.granted.done()
    clock.now += 0.2
    hold.pods.on_verdict("a", ready=None, message="")
    assert place.granted.done()


async def test_limits_may_shrink_below_what_is_held(hold: Hold) -> None:
    for _ in range(3):
        waiting(hold)
    hold.update(deployment(queueLimit=2))
    with pytest.raises(Refusal) as refused:
        hold.enter()
    assert refused.value.outcome is Outcome.QUEUE_FULL
    assert hold.line.held == 3


async def test_one_who_still_sends_when_all_is_lost_is_told_at_the_end(hold: Hold) -> None:
    place = hold.enter()
    hold.close(Refusal(Outcome.SHUTTING_DOWN, "bye"))
    with pytest.raises(Refusal, match="bye"):
        hold.join(place)


async def test_bad_news_end_the_waiting_unless_a_pod_serves(hold: Hold) -> None:
    first = waiting(hold)
    bad = condition("Ready", "False", Reason.ENGINE_CRASH_LOOPING, "exit code 1")
    hold.update(deployment(bad))
    with pytest.raises(Refusal, match="exit code 1"):
        await first
    with pytest.raises(Refusal, match="exit code 1"):
        hold.enter()
    hold.pods.put(model_pod("a", ready=True))
    assert hold.direct() is not None
    hold.enter()
