"""Changed revisions: what rolls, what does not, and what happens when one fails."""

from __future__ import annotations

import asyncio

from tests.apiserver.operator.world import World, activator
from warmgraph_operator import kinds
from warmgraph_operator.kinds import Object


async def test_a_roll_keeps_the_old_pod_until_the_new_one_is_ready(world: World) -> None:
    await world.start()
    await world.create("tiny")
    old = await world.pod()
    await world.run_pod(old)
    await world.until("tiny", "Ready", "True")
    await world.edit("tiny", model={"revision": "two"})
    new = await other_pod(world, old)
    message = await world.until("tiny", "Ready", "False", "RollingOut")
    assert message == "0 of 1 replicas run revision " + revision(new)
    assert (await world.condition("tiny", "Serving"))[0] == "True"
    await world.run_pod(new)
    world.kubelet()
    await world.until("tiny", "UpToDate", "True")
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    await world.alone(new)
    reasons = [e["reason"] for e in await world.all(kinds.EVENT)]
    assert "RollingOut" in reasons and "CurrentRevision" in reasons


async def test_there_and_back_before_it_is_done_restarts_nothing(world: World) -> None:
    await world.start()
    await world.create("tiny")
    old = await world.pod()
    await world.run_pod(old)
    await world.until("tiny", "Ready", "True")
    await world.edit("tiny", model={"revision": "two"})
    await other_pod(world, old)
    world.kubelet_only_removes()
    await world.edit("tiny", model={"revision": ""})
    await world.alone(old)
    await world.until("tiny", "Ready", "True", "AllReplicasReady")


async def test_quick_edits_never_take_the_serving_pod_down(world: World) -> None:
    await world.start()
    await world.create("tiny")
    old = await world.pod()
    await world.run_pod(old)
    await world.until("tiny", "Ready", "True")
    for number in range(4):
        await world.edit("tiny", model={"revision": str(number)})
        await asyncio.sleep(0.3)
        kept = await world.have(kinds.POD, old["metadata"]["name"])
        assert "deletionTimestamp" not in kept["metadata"]
    world.kubelet()
    await world.until("tiny", "UpToDate", "True")


async def test_only_what_decides_a_pod_rolls(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny", scaling={"autoscaler": "None"})
    await world.until("tiny", "Ready", "True")
    pod = await world.pod()
    await world.edit(
        "tiny",
        scaling={"maxReplicas": 7},
        rollout={"progressDeadlineSeconds": 900},
        paused=False,
    )
    await world.eventually(world.quiet, "quiet")
    assert (await world.pod())["metadata"]["uid"] == pod["metadata"]["uid"]
    deployment = await world.have(kinds.DEPLOYMENT, "tiny")
    assert deployment["spec"]["progressDeadlineSeconds"] == 900
    await world.edit("tiny", buckets={"decode": {"eager": [1, 2]}})
    await gone(world, pod)
    pod = await world.pod()
    assert "--decode-buckets=1,2" in pod["spec"]["containers"][0]["args"]
    await world.edit("tiny", template={"env": [{"name": "A", "value": "1"}]})
    await gone(world, pod)


async def test_a_changed_config_map_rolls(world: World) -> None:
    await world.post(kinds.CONFIG_MAP, {"metadata": {"name": "settings"}, "data": {"LEVEL": "1"}})
    await world.start()
    world.kubelet()
    await world.create("tiny", template={"envFrom": [{"configMapRef": {"name": "settings"}}]})
    await world.until("tiny", "Ready", "True")
    pod = await world.pod()
    await world.patch(kinds.CONFIG_MAP, "settings", {"data": {"LEVEL": "2"}})
    await gone(world, pod)
    await world.until("tiny", "Ready", "True")


async def test_one_gpu_replaces_instead_of_surging(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny", rollout={"strategy": "Replace"})
    await world.until("tiny", "Ready", "True")
    deployment = await world.have(kinds.DEPLOYMENT, "tiny")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    await world.edit("tiny", rollout={"strategy": "Surge", "maxSurge": 2})

    async def surges() -> bool:
        found = await world.have(kinds.DEPLOYMENT, "tiny")
        rolling = found["spec"]["strategy"].get("rollingUpdate", {})
        return bool(rolling.get("maxSurge") == 2)

    await world.eventually(surges, "another strategy")


async def test_a_failed_roll_is_rolled_back_once(world: World) -> None:
    await world.start()
    await world.create("tiny", rollout={"progressDeadlineSeconds": 10, "onFailure": "Rollback"})
    old = await world.pod()
    await world.run_pod(old)
    await world.until("tiny", "Ready", "True")
    good = revision(old)
    await world.edit("tiny", model={"revision": "bad"})
    bad = revision(await other_pod(world, old))
    world.kubelet_only_removes()
    message = await world.until("tiny", "Ready", "False", "RolledBack")
    assert good in message and bad in message
    assert (await world.condition("tiny", "UpToDate"))[:2] == ("False", "RolledBack")
    assert (await world.condition("tiny", "Serving"))[0] == "True"
    await world.eventually(world.quiet, "quiet")
    assert (await world.pod())["metadata"]["uid"] == old["metadata"]["uid"]
    world.kubelet()
    await world.edit("tiny", model={"revision": "better"})
    await world.until("tiny", "Ready", "True", "AllReplicasReady")


async def test_a_held_roll_says_so_and_the_old_pod_serves_on(world: World) -> None:
    await world.start()
    await world.create("tiny", rollout={"progressDeadlineSeconds": 10})
    old = await world.pod()
    await world.run_pod(old)
    await world.until("tiny", "Ready", "True")
    await world.edit("tiny", model={"revision": "bad"})
    await other_pod(world, old)
    await world.until("tiny", "Ready", "False", "ProgressDeadlineExceeded")
    assert (await world.condition("tiny", "Progressing"))[0] == "False"
    assert (await world.condition("tiny", "Serving"))[0] == "True"


async def test_history_is_bounded(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny", rollout={"historyLimit": 1})
    await world.until("tiny", "Ready", "True")
    for number in range(3):
        await world.edit("tiny", model={"revision": str(number)})
        await world.until("tiny", "UpToDate", "True")

    async def two() -> bool:
        return len(await world.all(kinds.CONTROLLER_REVISION)) == 2

    await world.eventually(two, "the current record and one more")


def revision(pod: Object) -> str:
    return str(pod["metadata"]["labels"]["warmgraph.dev/revision"])


async def other_pod(world: World, old: Object) -> Object:
    async def found() -> Object | None:
        pods = await world.all(kinds.POD)
        return next((p for p in pods if p["metadata"]["uid"] != old["metadata"]["uid"]), None)

    pod: Object = await world.eventually(found, "a second pod")
    return pod


async def gone(world: World, pod: Object) -> None:
    async def check() -> bool:
        pods = await world.all(kinds.POD)
        return all(p["metadata"]["uid"] != pod["metadata"]["uid"] for p in pods)

    await world.eventually(check, "the pod is gone")


async def test_a_roll_with_activators_installed_goes_its_way(world: World) -> None:
    await activator(world)
    await world.start(activator_namespace=world.namespace)
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Ready", "True")
    pod = await model_pod(world)
    await world.edit("tiny", model={"revision": "two"})
    await gone(world, pod)
    await world.until("tiny", "Ready", "True")


async def test_a_replacement_puts_the_activators_in_first(world: World) -> None:
    await activator(world)
    await world.start(activator_namespace=world.namespace)
    world.kubelet()
    await world.create("tiny", rollout={"strategy": "Replace"})
    await world.until("tiny", "Ready", "True")
    old = await model_pod(world)
    await world.eventually(lambda: no_slice(world), "no slice while the pod serves")
    await world.edit("tiny", model={"revision": "two"})
    await world.have(kinds.ENDPOINT_SLICE, "tiny-activator")
    await world.eventually(world.quiet, "quiet")
    assert (await model_pod(world))["metadata"]["uid"] == old["metadata"]["uid"]
    resource = await world.have(kinds.INFERENCE_DEPLOYMENT, "tiny")
    port = resource["status"]["activator"]["port"]
    world.pods.stands_for[port] = (world.namespace, "tiny")
    await gone(world, old)
    assert not await no_slice(world)
    await world.until("tiny", "Ready", "True")
    await world.eventually(lambda: no_slice(world), "no slice once the new pod serves")


async def no_slice(world: World) -> bool:
    return await world.get(kinds.ENDPOINT_SLICE, "tiny-activator") is None


async def model_pod(world: World) -> Object:
    (pod,) = await world.cluster.list(
        kinds.POD, world.namespace, labels="warmgraph.dev/inference-deployment=tiny"
    )
    return pod
