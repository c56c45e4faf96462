"""What goes wrong is named in a condition, with what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.operator.world import World
from warmgraph_api.report import PodState, Stage, WarmupReport
from warmgraph_operator import kinds
from warmgraph_operator.kinds import Kind

REFUSED = {"key": "gpu", "operator": "Sometimes"}
"""A toleration that the API server refuses in a Deployment."""

NOW = "2026-01-01T00:00:00Z"


async def test_a_missing_storage_class_is_named(world: World) -> None:
    await world.start()
    volume = {"volume": {"storageClassName": "golden"}}
    await world.create("tiny", graphCache={"mode": "ReadWrite", **volume})
    message = await world.until("tiny", "Ready", "False", "StorageClassMissing")
    assert "StorageClass golden, which does not exist" in message
    # Naming another one replaces the claim, which nothing is bound to.
    volume["volume"]["storageClassName"] = "silver"
    await world.edit("tiny", graphCache=volume)

    async def replaced() -> bool:
        claim = await world.get(kinds.CLAIM, "tiny-graph-cache")
        return claim is not None and claim["spec"]["storageClassName"] == "silver"

    await world.eventually(replaced, "a claim of the other class")


async def test_no_default_storage_class_is_named(world: World) -> None:
    await world.start()
    await world.create("tiny", graphCache={"mode": "ReadWrite"})
    message = await world.until("tiny", "Ready", "False", "StorageClassMissing")
    assert "has no default one" in message


async def test_a_provisioner_that_fails_is_quoted(world: World) -> None:
    fast = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": world.namespace},
        "provisioner": "nobody",
    }
    await world.cluster._request("POST", kinds.STORAGE_CLASS.path(None), body=fast)
    await world.start()
    volume = {"volume": {"storageClassName": world.namespace}}
    await world.create("tiny", graphCache={"mode": "ReadWrite", **volume})
    claim = await world.have(kinds.CLAIM, "tiny-graph-cache")
    about = {"kind": "PersistentVolumeClaim", "name": "tiny-graph-cache"}
    metadata = claim["metadata"]
    event = {
        "metadata": {"name": "failed"},
        "involvedObject": {**about, "namespace": world.namespace, "uid": metadata["uid"]},
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": "ReadWriteMany is not supported",
    }
    await world.post(kinds.CORE_EVENT, event)
    message = await world.until("tiny", "Ready", "False", "ClaimPending")
    assert "ReadWriteMany is not supported" in message


async def test_a_missing_model_claim_is_named(world: World) -> None:
    await world.start()
    await world.create("tiny", model={"uri": "pvc://models/smollm2"})
    message = await world.until("tiny", "Ready", "False", "ClaimMissing")
    assert "models does not exist" in message


async def test_an_unschedulable_pod_is_named(world: World) -> None:
    await world.start()
    await world.create("tiny")
    pod = await world.pod()
    reason = {"reason": "Unschedulable", "message": "0/1 nodes: Insufficient nvidia.com/gpu"}
    condition = {"type": "PodScheduled", "status": "False", "lastTransitionTime": NOW, **reason}
    await world.pod_status(pod["metadata"]["name"], conditions=[condition])
    message = await world.until("tiny", "Ready", "False", "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in message


async def test_a_bad_image_is_named(world: World) -> None:
    await world.start()
    await world.create("tiny")
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    await container(world, "engine", state={"waiting": waiting})
    message = await world.until("tiny", "Ready", "False", "ImagePullFailed")
    assert "'engine:1'" in message and "not found" in message


async def test_a_crash_loop_is_named_with_its_last_words(world: World) -> None:
    await world.start()
    await world.create("tiny")
    ended = {"exitCode": 3, "reason": "Error", "message": "Traceback\nValueError: no such model"}
    await container(
        world,
        "engine",
        restarts=4,
        state={"waiting": {"reason": "CrashLoopBackOff"}},
        lastState={"terminated": ended},
    )
    message = await world.until("tiny", "Ready", "False", "EngineCrashLooping")
    assert "code 3" in message and "ValueError: no such model" in message


async def test_a_pod_that_may_not_be_created_is_named(world: World) -> None:
    quota = Kind("v1", "ResourceQuota", "resourcequotas")
    await world.post(quota, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})

    async def counted() -> bool:
        found = await world.have(quota, "none")
        return "used" in (found.get("status") or {})

    await world.eventually(counted, "the quota in force")
    await world.start()
    await world.create("tiny")
    message = await world.until("tiny", "Ready", "False", "PodRejected")
    assert "exceeded quota" in message


async def test_a_failed_warmup_is_named(world: World) -> None:
    await world.start()
    await world.create("tiny")
    pod = await world.pod()
    report = WarmupReport(boot_id="b", sequence=1, progress=1, stage=Stage.FAILED, started_at=0.0)
    state = PodState(
        ready=False,
        reason="WarmupFailed",
        message="capture failed: decode 8 (out of memory)",
        engine_connected=True,
        report=report,
    )
    await world.run_pod(pod, state)
    await world.pod_status(pod["metadata"]["name"], conditions=[])
    message = await world.until("tiny", "Ready", "False", "WarmupFailed")
    assert "decode 8 (out of memory)" in message
    warnings = [e["reason"] for e in await world.all(kinds.EVENT) if e["type"] == "Warning"]
    assert warnings.count("WarmupFailed") == 1


async def test_a_refused_object_is_named(world: World) -> None:
    await world.start()
    await world.create("tiny", template={"tolerations": [REFUSED]})
    message = await world.until("tiny", "Ready", "False", "ApplyFailed")
    assert "Deployment tiny" in message


@pytest.mark.parametrize(
    "template",
    [
        {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
        {"volumes": [{"name": "v", "configMap": "settings"}]},
        {"env": [{"name": "A", "valueFrom": "settings"}]},
        {"envFrom": [{"configMapRef": {"name": "../secrets/other"}}]},
    ],
    ids=["claim without a name", "no object", "no source", "no name"],
)
async def test_a_template_of_a_wrong_shape_is_named(world: World, template: dict[str, Any]) -> None:
    await world.start()
    await world.create("tiny", template=template)
    message = await world.until("tiny", "Ready", "False", "ApplyFailed")
    assert "Deployment tiny" in message


async def test_one_resource_in_trouble_does_not_stop_another(world: World) -> None:
    await world.start()
    world.kubelet()
    await world.create("broken", template={"tolerations": [REFUSED]})
    await world.until("broken", "Ready", "False", "ApplyFailed")
    await world.create("fine")
    await world.until("fine", "Ready", "True")


async def container(world: World, name: str, *, restarts: int = 0, **states: Any) -> None:
    """Give the one pod's container this state."""
    pod = await world.pod()
    status = {
        "name": name,
        "image": "engine:1",
        "imageID": "",
        "ready": False,
        "restartCount": restarts,
        **states,
    }
    await world.pod_status(pod["metadata"]["name"], containerStatuses=[status])
