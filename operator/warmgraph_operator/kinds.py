"""The kinds of Kubernetes objects that the operator reads or writes."""

from __future__ import annotations

from typing import Any, NamedTuple

from warmgraph_api import labels

Object = dict[str, Any]
"""A Kubernetes object as the API server gives it: JSON, not a class."""


class Kind(NamedTuple):
    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path; a namespace of None addresses all of them, or a cluster-wide kind."""
        root = "/api" if "/" not in self.api_version else "/apis"
        parts = [root, self.api_version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


INFERENCE_DEPLOYMENT = Kind(labels.API_VERSION, labels.KIND, labels.PLURAL)
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
CONTROLLER_REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
POD = Kind("v1", "Pod", "pods")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
ENDPOINT_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass", "storageclasses")
AUTOSCALER = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SCALED_OBJECT = Kind("keda.sh/v1alpha1", "ScaledObject", "scaledobjects")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
CORE_EVENT = Kind("v1", "Event", "events")

WATCHED_KINDS = (
    DEPLOYMENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    BUDGET,
    CLAIM,
    ENDPOINT_SLICE,
)
"""A change of one of these, labelled as a deployment's, wakes that deployment's loop."""


class Wanted(NamedTuple):
    """An object that should exist, and what is there under its name now."""

    kind: Kind
    body: Object
    live: Object | None
