"""Who decides replicas, and the way to zero and back."""

from __future__ import annotations

from typing import Any

from tests.apiserver.operator.world import World, activator, warm
from warmgraph_api.report import Load
from warmgraph_operator import kinds


async def test_scale_is_copied_to_the_deployment(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny", scaling={"autoscaler": "None"})
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    await world.patch(kinds.INFERENCE_DEPLOYMENT, "tiny", {"spec": {"replicas": 3}}, "scale")
    await world.eventually(lambda: replicas(world, "tiny", 3), "three replicas")
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    status = (await world.have(kinds.INFERENCE_DEPLOYMENT, "tiny"))["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 3, 3)
    assert status["selector"] == "warmgraph.dev/inference-deployment=tiny"


async def test_a_deployment_scaled_by_hand_converges_once(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny", scaling={"autoscaler": "None"})
    await world.until("tiny", "Ready", "True")
    before = world.audit_position()
    await world.patch(kinds.DEPLOYMENT, "tiny", {"spec": {"replicas": 4}}, "scale")
    await world.eventually(lambda: replicas(world, "tiny", 1), "one replica again")
    await world.eventually(world.quiet, "quiet")
    applied = [write for write in world.writes(before) if write == "patch deployments/tiny"]
    assert len(applied) == 1


async def test_zero_waits_for_an_activator_that_answers(world: World) -> None:
    await activator(world)
    await world.start(activator_namespace=world.namespace)
    world.kubelet()
    await world.create("tiny", scaling={"autoscaler": "None", "minReplicas": 0})
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    port = await activator_port(world, "tiny")
    assert port == 20000
    await world.eventually(lambda: gone(world), "no slice while pods serve")
    await world.edit("tiny", replicas=0)
    await world.until("tiny", "Ready", "False", "Draining")
    entry = await world.have(kinds.ENDPOINT_SLICE, "tiny-activator")
    assert entry["ports"][0]["port"] == port
    assert entry["metadata"]["labels"]["kubernetes.io/service-name"] == "tiny"
    assert [e["addresses"] for e in entry["endpoints"]] == [["10.99.7.7"]]
    assert await replicas(world, "tiny", 1)
    world.pods.stands_for[port] = (world.namespace, "tiny")
    await world.until("tiny", "Ready", "True", "ScaledToZero")
    await world.until("tiny", "Progressing", "False", "Stable")
    assert (await world.condition("tiny", "Serving"))[:2] == ("True", "ScaledToZero")
    assert await replicas(world, "tiny", 0)

    # A request comes: the activator writes 1, and leaves once the pod's endpoint is live.
    await world.patch(kinds.INFERENCE_DEPLOYMENT, "tiny", {"spec": {"replicas": 1}}, "scale")
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    await world.eventually(lambda: gone(world), "no slice")


async def test_idle_goes_to_zero_and_requests_in_flight_scale_up(world: World) -> None:
    await activator(world)
    await world.start(activator_namespace=world.namespace)
    world.kubelet()
    await world.create(
        "tiny",
        scaling={
            "minReplicas": 0,
            "maxReplicas": 3,
            "targetInFlight": 4,
            "idleSeconds": 60,
            "scaleDownDelaySeconds": 0,
        },
    )
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    world.pods.stands_for[await activator_port(world, "tiny")] = (world.namespace, "tiny")
    await load(world, Load(running=4, waiting=5))
    await world.eventually(lambda: replicas(world, "tiny", 3), "three for nine in flight")
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    await load(world, Load(idle_seconds=10.0))
    await world.eventually(lambda: replicas(world, "tiny", 1), "one, not idle for long")
    await load(world, Load(idle_seconds=61.0))
    await world.until("tiny", "Ready", "True", "ScaledToZero")
    events = [e["reason"] for e in await world.all(kinds.EVENT)]
    assert events.count("Scaled") == 3


async def test_without_activators_zero_is_taken_at_its_word(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny", replicas=0, scaling={"autoscaler": "None", "minReplicas": 0})
    await world.until("tiny", "Ready", "True", "ScaledToZero")
    status, reason, message = await world.condition("tiny", "Serving")
    assert (status, reason) == ("False", "ScaledToZero")
    assert "no activators" in message
    assert await replicas(world, "tiny", 0)


async def test_a_second_autoscaler_is_refused(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny", scaling={"maxReplicas": 5, "targetInFlight": 1})
    await world.until("tiny", "Ready", "True")
    await autoscaler(world, kind="InferenceDeployment")
    message = await world.until("tiny", "Ready", "False", "ConflictingAutoscaler")
    assert "HorizontalPodAutoscaler rival" in message
    await load(world, Load(running=5))
    await world.eventually(world.quiet, "the built-in autoscaler keeps still")
    assert await replicas(world, "tiny", 1)
    await world.edit("tiny", scaling={"autoscaler": "External"})
    await world.until("tiny", "Ready", "True", "AllReplicasReady")


async def test_an_autoscaler_of_the_deployment_is_named_and_not_fought(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Ready", "True")
    await autoscaler(world, kind="Deployment")
    await world.until("tiny", "Ready", "False", "ConflictingAutoscaler")
    before = world.audit_position()
    await world.patch(kinds.DEPLOYMENT, "tiny", {"spec": {"replicas": 2}}, "scale")
    await world.eventually(world.quiet, "quiet")
    assert await replicas(world, "tiny", 2)
    assert "patch deployments/tiny" not in world.writes(before)


async def test_each_deployment_has_a_port_of_its_own(world: World) -> None:
    await activator(world)
    await world.start(activator_namespace=world.namespace)
    for name in ("one", "two", "three"):
        await world.create(name)
    ports = {await activator_port(world, name) for name in ("one", "two", "three")}
    assert ports == {20000, 20001, 20002}


# --- helpers


async def autoscaler(world: World, *, kind: str) -> None:
    version = "apps/v1" if kind == "Deployment" else "warmgraph.dev/v1alpha1"
    target = {"apiVersion": version, "kind": kind, "name": "tiny"}
    # Nothing measures here, so it never acts by itself.
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5}
    await world.post(kinds.AUTOSCALER, {"metadata": {"name": "rival"}, "spec": spec})


async def replicas(world: World, name: str, count: int) -> bool:
    deployment = await world.have(kinds.DEPLOYMENT, name)
    return bool(deployment["spec"]["replicas"] == count)


async def activator_port(world: World, name: str) -> int:
    async def given() -> int | None:
        resource = await world.have(kinds.INFERENCE_DEPLOYMENT, name)
        return (resource.get("status") or {}).get("activator", {}).get("port") or None

    port: int = await world.eventually(given, "a port")
    return port


async def gone(world: World) -> bool:
    return await world.get(kinds.ENDPOINT_SLICE, "tiny-activator") is None


async def load(world: World, value: Load) -> None:
    """The first pod has this load, the others none for as long."""
    pods: list[Any] = sorted(world.pods.states_by_name)
    for index, name in enumerate(pods):
        idle = Load(idle_seconds=value.idle_seconds)
        world.pods.states_by_name[name] = warm(load=value if index == 0 else idle)
