"""At zero: requests are held, the deployment is woken, everyone is answered."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tests.activator.activated import WAIT_SECONDS, until
from tests.activator.cluster import PODS, RESOURCES
from tests.activator.conftest import Started, World
from tests.activator.objects import condition, pod


async def test_twenty_requests_at_zero_are_all_answered_after_one_wake_up(
    at_zero: Started,
) -> None:
    world = await at_zero()
    asking = [world.asking(f"/v1/models?n={n}") for n in range(20)]
    await until(lambda: world.api.scale_writes)
    model = await world.pod("llm-a")
    await model.start_sidecar()
    await world.held(20)
    await until(lambda: model.asked > 2)
    await model.start_engine()
    model.ready = True
    ready = time.monotonic()
    answers = await asyncio.gather(*asking)
    print(f"ready → all answered: {(time.monotonic() - ready) * 1000:.0f} ms")
    assert [status for status, _ in answers] == [200] * 20
    assert {body["path"] for _, body in answers} == {f"/v1/models?n={n}" for n in range(20)}
    assert world.api.scale_writes == [1]
    metrics = await world.metrics()
    labels = 'name="llm",namespace="default"'
    assert f'requests_total{{{labels},outcome="forwarded"}} 20.0' in metrics
    assert f"waited_seconds_count{{{labels}}} 20.0" in metrics
    assert f'wakes_total{{{labels},result="written"}} 1.0' in metrics


async def test_a_deployment_that_is_awake_is_not_written(world: World) -> None:
    await world.deployment(replicas=3)
    await world.start()
    asking = world.asking()
    await until(lambda: world.api.scale_reads)
    model = await world.pod("llm-a")
    await model.start()
    assert (await asking)[0] == 200
    assert world.api.scale_writes == []


async def test_two_activators_wake_it_once(at_zero: Started) -> None:
    """The other one writes between this one's read and write."""
    world = await at_zero()
    world.api.write_between = 1
    asking = world.asking()
    await until(lambda: world.api.scale_writes)
    await (await world.pod("llm-a")).start()
    assert (await asking)[0] == 200
    assert world.api.scale_writes == [1], "the other's"
    assert 'result="failed"' not in await world.metrics()


async def test_a_wake_up_that_fails_is_tried_again(at_zero: Started) -> None:
    world = await at_zero()
    world.api.fail_scale = 3
    asking = world.asking()
    await until(lambda: world.api.scale_writes)
    await (await world.pod("llm-a")).start()
    assert (await asking)[0] == 200


async def test_a_scale_down_while_somebody_waits_is_undone(at_zero: Started) -> None:
    world = await at_zero()
    asking = world.asking()
    await until(lambda: world.api.scale_writes == [1])
    value = world.api.objects[RESOURCES]["llm"]
    value["spec"]["replicas"] = 0
    await world.api.put(RESOURCES, value)
    await until(lambda: world.api.scale_writes == [1, 1])
    await (await world.pod("llm-a")).start()
    assert (await asking)[0] == 200


async def test_a_scale_down_after_everyone_was_answered_stays(at_zero: Started) -> None:
    """Also with idleSeconds 0, where it comes at once."""
    world = await at_zero()
    first = world.asking()
    await until(lambda: world.api.scale_writes == [1])
    second = world.asking()
    await world.held(2)
    await (await world.pod("llm-a")).start()
    await asyncio.gather(first, second)
    value = world.api.objects[RESOURCES]["llm"]
    value["spec"]["replicas"] = 0
    await world.api.put(RESOURCES, value)
    await asyncio.sleep(0.5)
    assert world.api.scale_writes == [1]


async def test_requests_to_pods_that_serve_pass_straight_through(world: World) -> None:
    await world.deployment(replicas=1)
    model = await world.pod("llm-a", ready=True)
    await model.start()
    await world.start()
    assert (await world.get())[0] == 200
    assert (world.api.scale_reads, model.asked) == (0, 0)


async def test_where_sidecars_cannot_be_asked_the_pods_condition_counts(world: World) -> None:
    await world.deployment(replicas=1)
    await world.start()
    asking = world.asking()
    await world.held(1)
    model = await world.pod("llm-a")
    await model.start_engine()
    await world.api.put(PODS, pod("llm-a", model.ip, ready=True))
    assert (await asking)[0] == 200


async def test_a_pod_that_is_going_gets_nothing(world: World) -> None:
    await world.deployment(replicas=1)
    old = await world.pod("llm-old", 2, ready=True)
    await old.start()
    await world.start()
    ending = pod("llm-old", old.ip, ready=True, deletionTimestamp="2026-01-01T00:00:00Z")
    await world.api.put(PODS, ending)
    new = await world.pod("llm-new", 3)
    await new.start()
    for _ in range(5):
        assert (await world.get())[1]["pod"] == "llm-new"


async def test_a_fresh_pod_that_refuses_connections_costs_only_time(at_zero: Started) -> None:
    world = await at_zero()
    asking = [world.asking(data=b"body") for _ in range(5)]
    model = await world.pod("llm-a")
    await model.start_sidecar()
    model.ready = True
    await until(lambda: model.asked > 5)
    await model.start_engine()
    assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 5
    assert [r.body for r in model.requests] == [b"body"] * 5
    labels = 'name="llm",namespace="default"'
    assert f"waited_seconds_count{{{labels}}} 5.0" in await world.metrics()


async def test_a_pod_that_lets_connections_time_out_is_asked_again(at_zero: Started) -> None:
    """While one tries to connect nobody waits, and nobody looks after the pods any more."""
    world = await at_zero()
    asking = world.asking()
    await until(lambda: world.api.scale_writes)
    model = await world.pod("llm-a")
    full = socket.create_server((model.ip, world.settings.engine_port), backlog=0)
    waiting = socket.create_connection(full.getsockname())  # the next one gets no answer at all
    await model.start_sidecar()
    model.ready = True
    await world.held(0)
    await world.held(1)
    waiting.close()
    full.close()
    await model.start_engine()
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await asking)[0] == 200


async def test_another_pod_is_taken_while_one_refuses(world: World) -> None:
    await world.deployment(replicas=2)
    await world.pod("llm-dead", 2, ready=True)
    alive = await world.pod("llm-alive", 3, ready=True)
    await alive.start()
    await world.start()
    for _ in range(5):
        assert (await world.get())[1]["pod"] == "llm-alive"


async def test_a_burst_is_spread_over_the_pods_that_come(at_zero: Started) -> None:
    """8 sequences a batch: 16 requests at a time for each pod."""
    world = await at_zero()
    asking = [world.asking(headers={"X-Wait": "yes"}) for _ in range(40)]
    await world.held(40)
    first = await world.pod("llm-a", 2)
    await first.start()
    await until(lambda: first.running == 16)
    await world.held(24)
    second = await world.pod("llm-b", 3)
    await second.start()
    await until(lambda: second.running == 16)
    await world.held(8)
    first.release.set()
    await until(lambda: first.most == 16 and len(first.requests) + len(second.requests) == 40)
    second.release.set()
    answers = await asyncio.gather(*asking)
    assert [status for status, _ in answers] == [200] * 40
    assert max(first.most, second.most) == 16


async def test_nothing_is_asked_while_nobody_waits(at_zero: Started) -> None:
    world = await at_zero()
    model = await world.pod("llm-a")
    await model.start()
    assert (await world.get())[0] == 200
    await world.held(0)
    await asyncio.sleep(0.15)
    asked, reads = model.asked, world.api.scale_reads
    await asyncio.sleep(0.4)
    assert (model.asked, world.api.scale_reads) == (asked, reads)


@pytest.mark.parametrize(
    "reason", ["ImagePullFailed", "EngineCrashLooping", "OutOfMemory", "WarmupFailed"]
)
async def test_requests_end_early_when_no_pod_will_come(at_zero: Started, reason: str) -> None:
    world = await at_zero()
    asking = world.asking()
    await until(lambda: world.api.scale_writes)
    await world.conditions(
        condition("Serving", "False", "NoReadyReplica"),
        condition("Ready", "False", reason, "as the node says"),
    )
    status, body = await asking
    assert status == 503
    assert body["error"]["code"] == "deployment_failed"
    assert body["error"]["message"] == f"default/llm cannot serve; {reason}: as the node says"
    assert (await world.get())[0] == 503, "the next one ends at once"


async def test_an_unschedulable_pod_is_waited_for_and_named_at_the_end(at_zero: Started) -> None:
    world = await at_zero(timeoutSeconds=1)
    asking = world.asking()
    await until(lambda: world.api.scale_writes)
    await world.conditions(
        condition("Ready", "False", "Unschedulable", "0/3 nodes have nvidia.com/gpu")
    )
    status, body = await asking
    assert (status, body["error"]["code"]) == (503, "activation_timeout")
    assert body["error"]["message"] == (
        "no pod of default/llm became ready within 1 s; "
        "Unschedulable: 0/3 nodes have nvidia.com/gpu"
    )


async def test_an_old_failure_does_not_refuse_the_next_attempt(at_zero: Started) -> None:
    world = await at_zero()
    stale = condition("Ready", "False", "ImagePullFailed") | {"observedGeneration": 1}
    await world.conditions(stale)
    asking = world.asking()
    await until(lambda: world.api.scale_writes)
    await world.conditions(stale)
    await (await world.pod("llm-a")).start()
    assert (await asking)[0] == 200
