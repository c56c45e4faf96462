"""From creation to deletion, with and without an operator at hand."""

from __future__ import annotations

import asyncio

from tests.apiserver.operator.world import World
from warmgraph_api import labels
from warmgraph_operator import kinds

OWN_KINDS = (
    kinds.DEPLOYMENT,
    kinds.SERVICE,
    kinds.BUDGET,
    kinds.CLAIM,
    kinds.CONTROLLER_REVISION,
    kinds.ENDPOINT_SLICE,
    kinds.POD,
)


async def test_everything_is_made_and_owned_and_becomes_ready(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.SERVICE_ACCOUNT, kinds.BUDGET):
        made = await world.have(kind, "tiny")
        (owner,) = made["metadata"]["ownerReferences"]
        assert owner["name"] == "tiny"
        assert owner["controller"] and owner["blockOwnerDeletion"]
    status = (await world.have(kinds.INFERENCE_DEPLOYMENT, "tiny"))["status"]
    assert status["graphs"]["summary"] == "eager 2/2, lazy 0/0"
    assert status["cache"]["result"] == "Miss"
    assert status["coldStart"]["totalMilliseconds"] == 2500
    assert status["currentRevision"] == status["updatedRevision"] != ""
    for condition in ("Serving", "Warm", "UpToDate"):
        assert (await world.condition("tiny", condition))[0] == "True"
    assert (await world.condition("tiny", "Progressing"))[:2] == ("False", "Stable")


async def test_a_steady_state_writes_nothing(world: World) -> None:
    operator = await world.start(resync_seconds=1.0)
    world.kubelet()
    await world.create("tiny", graphCache={"mode": "Disabled"})
    await world.until("tiny", "Progressing", "False", "Stable")
    await world.eventually(world.quiet, "quiet")
    before = world.audit_position()
    await world.passes(operator, 10)
    assert world.writes(before) == []


async def test_a_restarted_operator_touches_nothing(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Progressing", "False", "Stable")
    await world.eventually(world.quiet, "quiet")
    await world.stop()
    before = world.audit_position()
    operator = await world.start(resync_seconds=1.0)
    await world.passes(operator, 3)
    assert world.writes(before) == []


async def test_a_new_operator_with_other_images_restarts_no_pod(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Progressing", "False", "Stable")
    pod = await world.pod()
    await world.stop()
    operator = await world.start(engine_image="engine:2", sidecar_image="sidecar:2")
    await world.passes(operator, 3)
    assert (await world.pod())["metadata"]["uid"] == pod["metadata"]["uid"]
    await world.edit("tiny", model={"revision": "next"})
    await world.until("tiny", "UpToDate", "False", "RollingOut")
    await world.until("tiny", "UpToDate", "True")
    (container,) = (await world.pod())["spec"]["containers"]
    assert container["image"] == "engine:2"


async def test_deleting_leaves_nothing_behind(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny", graphCache={"mode": "ReadWrite"})
    await world.have(kinds.CLAIM, "tiny-graph-cache")
    await world.have(kinds.BUDGET, "tiny")
    await world.pod()
    await delete(world, "tiny")
    await world.eventually(lambda: nothing_left(world), "an empty namespace")


async def test_deleting_in_the_foreground_is_not_undone_meanwhile(world: World) -> None:
    """The resource then waits for its objects: one that was made anew would hold it for ever."""
    await world.start(resync_seconds=1.0)
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Ready", "True")
    await world.cluster._request(
        "DELETE",
        kinds.INFERENCE_DEPLOYMENT.path(world.namespace, "tiny"),
        body={"propagationPolicy": "Foreground"},
    )
    await world.eventually(lambda: nothing_left(world), "an empty namespace")


async def test_deleting_without_an_operator_does_not_hang(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Ready", "True")
    resource = await world.have(kinds.INFERENCE_DEPLOYMENT, "tiny")
    assert "finalizers" not in resource["metadata"]
    assert all("kopf" not in key for key in resource["metadata"].get("annotations", {}))
    await world.stop()
    await delete(world, "tiny")
    await world.eventually(lambda: nothing_left(world), "an empty namespace")


async def test_what_others_delete_or_change_is_put_right(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("tiny")
    await world.until("tiny", "Ready", "True")
    service = await world.have(kinds.SERVICE, "tiny")
    await world.cluster.delete(kinds.SERVICE, service)
    await world.patch(kinds.BUDGET, "tiny", {"spec": {"maxUnavailable": 0}})

    async def repaired() -> bool:
        made = await world.get(kinds.SERVICE, "tiny")
        budget = await world.have(kinds.BUDGET, "tiny")
        replaced = made is not None and made["metadata"]["uid"] != service["metadata"]["uid"]
        return replaced and budget["spec"]["maxUnavailable"] == 1

    await world.eventually(repaired, "repaired")


async def test_a_foreign_object_of_the_same_name_is_never_touched(world: World) -> None:
    port = {"ports": [{"port": 1234}]}
    foreign = await world.post(kinds.SERVICE, {"metadata": {"name": "tiny"}, "spec": port})
    await world.start()
    await world.create("tiny")
    message = await world.until("tiny", "Ready", "False", "NameConflict")
    assert "Service tiny" in message
    now = await world.have(kinds.SERVICE, "tiny")
    assert now["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
    await world.cluster.delete(kinds.SERVICE, now)
    world.kubelet()
    await world.until("tiny", "Ready", "True")


async def test_a_paused_resource_gets_status_and_nothing_else(world: World) -> None:
    await world.start()
    await world.create("tiny", paused=True)
    await world.until("tiny", "Progressing", "False", "Paused")
    assert await world.get(kinds.DEPLOYMENT, "tiny") is None
    world.kubelet()
    await world.edit("tiny", paused=False)
    await world.until("tiny", "Ready", "True")


async def test_the_watch_tells_of_a_new_resource_at_once(world: World) -> None:
    await world.start(resync_seconds=3000.0)
    await asyncio.sleep(1)
    await world.create("tiny")
    await world.eventually(lambda: world.get(kinds.DEPLOYMENT, "tiny"), "a Deployment", seconds=15)


async def delete(world: World, name: str) -> None:
    resource = await world.have(kinds.INFERENCE_DEPLOYMENT, name)
    await world.cluster.delete(kinds.INFERENCE_DEPLOYMENT, resource)


async def nothing_left(world: World) -> bool:
    if await world.all(kinds.INFERENCE_DEPLOYMENT):
        return False
    lists = [
        await world.cluster.list(kind, world.namespace, labels=labels.DEPLOYMENT)
        for kind in (*OWN_KINDS, kinds.SERVICE_ACCOUNT)
    ]
    return not any(lists)
