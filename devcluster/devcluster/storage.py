"""The provisioner of the storage class `local`: a folder on the node behind each claim.

The volumes are of the type `local`, not `hostPath`, because the kubelet honours a pod's fsGroup
only for the former. Folders belong to root, as a fresh disk would, so that a pod that forgets its
fsGroup fails here as it would elsewhere. The requested size is not enforced.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from devcluster.addons import PROVISIONER
from devcluster.client import ApiError, Client, segment
from devcluster.components import NODE_NAME
from devcluster.console import say

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


def volume_name(claim: Any) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def wants_volume(claim: Any, classes: dict[str, Any]) -> bool:
    """Whether the claim is one of ours and may be provisioned now."""
    chosen = classes.get(claim["spec"].get("storageClassName", ""))
    metadata = claim["metadata"]
    if chosen is None or claim["spec"].get("volumeName") or "deletionTimestamp" in metadata:
        return False
    if claim["status"].get("phase") != "Pending":
        return False
    # Before the scheduler has placed the pod, a delayed binding must not be forced.
    delayed = chosen.get("volumeBindingMode") == "WaitForFirstConsumer"
    return not delayed or SELECTED_NODE in metadata.get("annotations", {})


def volume(claim: Any, storage_class: Any, folder: Path) -> Any:
    """The persistent volume for a claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(claim),
            "annotations": {PROVISIONED_BY: PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            # Whatever is asked for: there is one node, where one folder can serve every pod.
            "accessModes": claim["spec"]["accessModes"],
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "storageClassName": storage_class["metadata"]["name"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim["metadata"]["namespace"],
                "name": claim["metadata"]["name"],
                "uid": claim["metadata"]["uid"],
            },
            "local": {"path": str(folder)},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/hostname",
                                    "operator": "In",
                                    "values": [NODE_NAME],
                                }
                            ]
                        }
                    ]
                }
            },
        },
    }


def is_released(persistent_volume: Any) -> bool:
    """Whether a volume of ours has lost its claim, and its data may go."""
    return (
        persistent_volume["metadata"].get("annotations", {}).get(PROVISIONED_BY) == PROVISIONER
        and persistent_volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and persistent_volume["status"].get("phase") in ("Released", "Failed")
        and "deletionTimestamp" not in persistent_volume["metadata"]
    )


def reconcile(client: Client, folders: Path) -> None:
    """Makes the volumes that are wanted and removes those that are not. Safe to repeat."""
    classes = {
        found["metadata"]["name"]: found
        for found in client.get(CLASSES)["items"]
        if found["provisioner"] == PROVISIONER
    }
    for claim in client.get(CLAIMS)["items"]:
        if not wants_volume(claim, classes):
            continue
        folder = folders / volume_name(claim)
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        chosen = classes[claim["spec"]["storageClassName"]]
        body = volume(claim, chosen, folder)
        try:
            client.apply(f"{VOLUMES}/{segment(volume_name(claim))}", body)
        except ApiError as error:
            say(f"claim {claim['metadata']['namespace']}/{claim['metadata']['name']}: {error}")
        else:
            say(f"made {folder}")
    for found in client.get(VOLUMES)["items"]:
        if is_released(found):
            folder = folders / found["metadata"]["name"]
            shutil.rmtree(folder, ignore_errors=True)
            client.delete(f"{VOLUMES}/{segment(found['metadata']['name'])}")
            say(f"removed {folder}")
