"""Names, labels and owner references of everything that is made."""

from __future__ import annotations

from collections.abc import Mapping

from warmgraph_api import labels
from warmgraph_operator.kinds import Kind, Object
from warmgraph_operator.resource import InferenceDeployment


def claim_name(infd: InferenceDeployment) -> str:
    """Of the graph cache's claim, created or given."""
    return infd.spec.graph_cache.volume.claim_name or f"{infd.name}-graph-cache"


def slice_name(infd: InferenceDeployment) -> str:
    return f"{infd.name}-activator"


def common_labels(infd: InferenceDeployment) -> dict[str, str]:
    return {
        labels.NAME: "warmgraph",
        labels.INSTANCE: infd.name,
        labels.MANAGED_BY: labels.FIELD_MANAGER,
        labels.DEPLOYMENT: infd.name,
    }


def owned(
    infd: InferenceDeployment,
    kind: Kind,
    name: str,
    *,
    extra_labels: Mapping[str, str] | None = None,
) -> Object:
    """Head of an object that goes when its InferenceDeployment goes."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": infd.metadata.namespace,
            "labels": {**common_labels(infd), **(extra_labels or {})},
            "ownerReferences": [
                {
                    "apiVersion": labels.API_VERSION,
                    "kind": labels.KIND,
                    "name": infd.name,
                    "uid": infd.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
    }
