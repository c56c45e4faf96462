"""ServiceAccount, PodDisruptionBudget and the graph cache's claim."""

from __future__ import annotations

from warmgraph_api import labels
from warmgraph_api.resource import CacheMode
from warmgraph_operator.desired.metadata import claim_name, owned
from warmgraph_operator.kinds import BUDGET, CLAIM, SERVICE_ACCOUNT, Object
from warmgraph_operator.quantity import quantity
from warmgraph_operator.resource import InferenceDeployment


def service_account(infd: InferenceDeployment) -> Object:
    """Its own, without a token: model pods never talk to the API server."""
    return {
        **owned(infd, SERVICE_ACCOUNT, infd.name),
        "automountServiceAccountToken": False,
    }


def disruption_budget(infd: InferenceDeployment) -> Object:
    """One pod at a time may be evicted. With a single replica that is the only one: a budget
    that forbade it would hold up every node drain for ever. Pods that are not ready serve
    nobody, so they never hold one up either."""
    return {
        **owned(infd, BUDGET, infd.name),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {labels.DEPLOYMENT: infd.name}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def wants_claim(infd: InferenceDeployment) -> bool:
    cache = infd.spec.graph_cache
    return cache.mode is not CacheMode.DISABLED and not cache.volume.claim_name


def cache_claim(infd: InferenceDeployment, live: Object | None) -> Object:
    """The claim as declared. Of a live one only the size may change, and only grow: the rest is
    immutable in Kubernetes, and a bound claim holds graphs that are worth keeping."""
    volume = infd.spec.graph_cache.volume
    spec: Object = {
        "accessModes": [volume.access_mode],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class_name:
        spec["storageClassName"] = volume.storage_class_name
    if live is not None:
        current = live["spec"]["resources"]["requests"]["storage"]
        if quantity(current) >= quantity(volume.size):
            spec["resources"]["requests"]["storage"] = current
        spec["accessModes"] = live["spec"]["accessModes"]
        spec.pop("storageClassName", None)
        if live["spec"].get("storageClassName"):
            spec["storageClassName"] = live["spec"]["storageClassName"]
    return {**owned(infd, CLAIM, claim_name(infd)), "spec": spec}


def claim_outdated(infd: InferenceDeployment, live: Object) -> bool:
    """An unbound claim whose class or access mode is no longer what is declared. It holds
    nothing, so it may be replaced, which is how a wrong StorageClass is put right."""
    volume = infd.spec.graph_cache.volume
    if (live.get("status") or {}).get("phase") != "Pending":
        return False
    other_class = volume.storage_class_name not in ("", live["spec"].get("storageClassName", ""))
    return other_class or live["spec"]["accessModes"] != [volume.access_mode]
