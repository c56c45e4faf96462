"""Which claims get a volume, and which volumes are removed."""

from pathlib import Path
from typing import Any

import pytest

from devcluster import fakegpu, storage
from devcluster.addons import PROVISIONER

DELAYED = {
    "metadata": {"name": "local"},
    "provisioner": PROVISIONER,
    "volumeBindingMode": "WaitForFirstConsumer",
}
CLASSES = {
    "local": DELAYED,
    "now": {**DELAYED, "metadata": {"name": "now"}, "volumeBindingMode": "Immediate"},
}


def claim(**changes: Any) -> Any:
    spec = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        **changes,
    }
    metadata = {
        "name": "cache",
        "namespace": "models",
        "uid": "1234",
        "annotations": {storage.SELECTED_NODE: "devcluster"},
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def test_claim_whose_pod_was_placed_gets_a_volume() -> None:
    assert storage.wants_volume(claim(), CLASSES)


def test_claim_waits_for_its_first_pod() -> None:
    waiting = claim()
    del waiting["metadata"]["annotations"]
    assert not storage.wants_volume(waiting, CLASSES)


def test_claim_of_an_immediate_class_waits_for_nobody() -> None:
    waiting = claim(storageClassName="now")
    del waiting["metadata"]["annotations"]
    assert storage.wants_volume(waiting, CLASSES)


@pytest.mark.parametrize(
    "changes", [{"storageClassName": "another"}, {"storageClassName": ""}, {"volumeName": "chosen"}]
)
def test_claim_of_somebody_else_is_left_alone(changes: dict[str, str]) -> None:
    assert not storage.wants_volume(claim(**changes), CLASSES)


def test_bound_claim_is_left_alone() -> None:
    bound = claim()
    bound["status"]["phase"] = "Bound"
    assert not storage.wants_volume(bound, CLASSES)


def test_volume_honours_fs_group_and_is_meant_for_its_claim_alone() -> None:
    made = storage.volume(claim(), DELAYED, Path("/volumes/pvc-1234"))
    assert made["metadata"]["name"] == "pvc-1234"
    assert made["spec"]["local"] == {"path": "/volumes/pvc-1234"}
    assert made["spec"]["claimRef"]["uid"] == "1234"
    assert made["spec"]["accessModes"] == ["ReadWriteMany"]


def released(**metadata: Any) -> Any:
    return {
        "metadata": {"annotations": {storage.PROVISIONED_BY: PROVISIONER}, **metadata},
        "spec": {"persistentVolumeReclaimPolicy": "Delete"},
        "status": {"phase": "Released"},
    }


def test_released_volume_of_ours_is_removed() -> None:
    assert storage.is_released(released())


def test_volume_that_somebody_made_by_hand_is_not_removed() -> None:
    assert not storage.is_released(released(annotations={}))


def node(**status: dict[str, str]) -> Any:
    return {"status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}, **status}}


def test_fake_gpus_are_added_once() -> None:
    change = fakegpu.patch(node(), 2)
    assert change == {
        "status": {
            "capacity": {"nvidia.com/gpu": "2"},
            "allocatable": {"nvidia.com/gpu": "2"},
        }
    }
    assert fakegpu.patch(node(**change["status"]), 2) is None


def test_fake_gpus_are_taken_away_again() -> None:
    shown = {"nvidia.com/gpu": "2"}
    change = fakegpu.patch(node(capacity=shown, allocatable=shown), 0)
    assert change is not None
    assert change["status"]["capacity"] == {"nvidia.com/gpu": None}


def test_real_node_without_gpus_is_left_alone() -> None:
    assert fakegpu.patch(node(), 0) is None
