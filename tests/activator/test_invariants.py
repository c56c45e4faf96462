"""Whatever comes in whatever order: nobody is lost, counted twice, or overtaken."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import aiohttp
import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.activator.activated import until
from tests.activator.conftest import Started
from tests.activator.objects import model_pod, resource
from warmgraph_activator.hold import Hold
from warmgraph_activator.line import Place
from warmgraph_activator.objects import Deployment
from warmgraph_activator.pods import Lease
from warmgraph_activator.refusal import Refusal

LIMIT = 6
BATCH = 1
PODS = ("a", "b", "c")


class OneDeployment(RuleBasedStateMachine):
    """Callers come, send, leave; pods come, go, refuse; time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 0.0
        value = resource("llm", replicas=1, queueLimit=LIMIT)
        value["spec"]["engine"]["maxBatchSize"] = BATCH
        self.hold = Hold(msgspec.convert(value, Deployment), clock=lambda: self.now)
        self.sending: list[Place] = []
        self.waiting: list[Place] = []
        """In the order in which they joined."""
        self.served: list[tuple[Place, Lease]] = []

    def teardown(self) -> None:
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def collect(self) -> None:
        """Those who got a pod go there; nobody who joined later may have got one before them."""
        granted = [p.granted.done() for p in self.waiting]
        assert granted == sorted(granted, reverse=True), "overtaken"
        for place in [p for p in self.waiting if p.granted.done()]:
            self.waiting.remove(place)
            self.served.append((place, self.run(place.wait(0))))

    @rule()
    def come(self) -> None:
        async def enter() -> Place:
            return self.hold.enter()

        full = len(self.sending) + len(self.waiting) >= LIMIT
        try:
            self.sending.append(self.run(enter()))
        except Refusal:
            assert full
        else:
            assert not full

    @precondition(lambda self: self.sending)
    @rule(data=st.data())
    def finish_sending(self, data: st.DataObject) -> None:
        place = self.sending.pop(data.draw(st.integers(0, len(self.sending) - 1)))
        self.waiting.append(place)
        self.hold.join(place)
        self.collect()

    @precondition(lambda self: self.sending or self.waiting)
    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        group = self.sending or self.waiting
        place = group.pop(data.draw(st.integers(0, len(group) - 1)))
        place.__exit__(None, None, None)
        self.collect()

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        place, lease = self.served.pop(data.draw(st.integers(0, len(self.served) - 1)))
        lease.release()
        place.__exit__(None, None, None)
        self.collect()

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def pod_refuses(self, data: st.DataObject) -> None:
        place, lease = self.served.pop(data.draw(st.integers(0, len(self.served) - 1)))

        async def rejoin() -> None:
            lease.on_refused()
            self.hold.rejoin(place)

        self.run(rejoin())
        self.waiting.insert(0, place)
        lease.release()
        self.collect()

    @rule(name=st.sampled_from(PODS), ready=st.booleans())
    def pod_changes(self, name: str, ready: bool) -> None:
        self.hold.pods.put(model_pod(name, f"10.0.0.{ord(name)}", ready=ready))
        self.collect()

    @rule(name=st.sampled_from(PODS), ready=st.sampled_from([True, False, None]))
    def sidecar_answers(self, name: str, ready: bool | None) -> None:
        self.hold.pods.on_verdict(name, ready=ready, message="")
        self.collect()

    @rule(name=st.sampled_from(PODS))
    def pod_goes(self, name: str) -> None:
        self.hold.pods.remove(name)

    @rule(seconds=st.sampled_from([0.05, 0.2, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def everyone_is_counted_once(self) -> None:
        assert self.hold.line.held == len(self.sending) + len(self.waiting)
        assert self.hold.line.waiting == len(self.waiting)

    @invariant()
    def no_pod_has_more_than_it_can_take(self) -> None:
        names = [lease.pod for _, lease in self.served]
        known = {name: seen.in_flight for name, seen in self.hold.pods._seen.items()}
        assert all(count <= 2 * BATCH for count in known.values())
        assert all(names.count(name) >= count for name, count in known.items())

    @invariant()
    def nobody_waits_beside_a_free_pod(self) -> None:
        """Time may have made one free unnoticed; the next answer of a sidecar tells."""
        self.hold.pump()
        self.collect()
        assert not self.waiting or self.hold.pods.lease() is None


TestOneDeployment = OneDeployment.TestCase
TestOneDeployment.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, derandomize=True
)


async def test_after_a_stormy_time_nothing_is_left_over(at_zero: Started) -> None:
    """Callers that hang up at any moment, pods that stall, refuse and come back."""
    dice = random.Random(7)
    world = await at_zero(queueLimit=1000)
    models = [await world.pod(f"llm-{n}", n) for n in range(2, 5)]
    for model in models:
        await model.start_sidecar()

    async def call(number: int) -> int | None:
        stays = dice.random() < 0.7
        body = b"x" * dice.randrange(20_000)
        try:
            async with asyncio.timeout(None if stays else dice.random()):
                await asyncio.sleep(dice.random())
                async with world.client.post(f"{world.url}/{number}", data=body) as response:
                    await response.read()
                    return response.status
        except TimeoutError:
            assert not stays
            return None
        except aiohttp.ClientError:
            return 0

    calls = [asyncio.create_task(call(n)) for n in range(200)]
    for _ in range(20):
        model = dice.choice(models)
        model.ready = not model.ready
        if model is models[0] and not model.engine_runs:
            await model.start_engine()
        await asyncio.sleep(0.05)
    for model in models:
        if not model.engine_runs:
            await model.start_engine()
        model.ready = True
    statuses = await asyncio.gather(*calls)
    assert set(statuses) <= {200, None}
    await until(lambda: not any(m.running for m in models))
    labels = '{name="llm",namespace="default"} 0.0'
    metrics = await world.metrics()
    for gauge in ("held_requests", "held_bytes", "forwarding"):
        assert f"warmgraph_activator_{gauge}{labels}" in metrics
    paths = [r.target for m in models for r in m.requests]
    assert len(paths) == len(set(paths)), "no request reached two pods"
