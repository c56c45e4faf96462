"""Everything that one pass knows, as values: no function that decides reads anything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from warmgraph_api import labels
from warmgraph_api.report import PodState
from warmgraph_operator.kinds import Object


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One InferenceDeployment's surroundings at one moment."""

    now: datetime
    deployment: Object | None = None
    service: Object | None = None
    service_account: Object | None = None
    budget: Object | None = None
    cache_claim: Object | None = None
    """Of the name that the operator would create, whoever it belongs to."""
    native_slices: tuple[Object, ...] = ()
    """EndpointSlices of the Service that Kubernetes made of pods."""
    activator_slice: Object | None = None
    """Whatever has the name of our own slice."""
    records: tuple[Object, ...] = ()
    """ControllerRevisions that the resource owns."""
    pods: tuple[Object, ...] = ()
    reports: Mapping[str, PodState] = field(default_factory=dict)
    """By pod name; a pod that stops or could not be asked is missing."""
    config_maps: Mapping[str, str] = field(default_factory=dict)
    """Digest of the content of each ConfigMap that the template refers to."""
    claims: Mapping[str, Object | None] = field(default_factory=dict)
    """Each claim that the pods mount, None where there is none of that name."""
    storage_classes: tuple[Object, ...] | None = None
    """None where they were not needed or may not be read."""
    warnings: Mapping[str, str] = field(default_factory=dict)
    """Latest warning event of a pod or claim that waits for something, by object name."""
    autoscalers: tuple[Object, ...] = ()
    """HorizontalPodAutoscalers and ScaledObjects of the namespace."""


def owned_by(live: Object, uid: str) -> bool:
    """Controlled by the object with this uid."""
    owners = live["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == uid and owner.get("controller") for owner in owners)


def left_by_predecessor(live: Object, *, name: str, uid: str) -> bool:
    """Of an earlier resource of the same name: garbage that Kubernetes is about to collect."""
    owners = live["metadata"].get("ownerReferences") or []
    return any(
        owner["kind"] == labels.KIND and owner["name"] == name and owner["uid"] != uid
        for owner in owners
    )


def being_deleted(live: Object) -> bool:
    return bool(live["metadata"].get("deletionTimestamp"))


def condition(live: Object | None, kind: str) -> Object | None:
    """The status condition of that type."""
    for entry in ((live or {}).get("status") or {}).get("conditions") or []:
        if entry["type"] == kind:
            result: Object = entry
            return result
    return None


def is_true(live: Object | None, kind: str) -> bool:
    entry = condition(live, kind)
    return entry is not None and entry["status"] == "True"


def live(pods: Iterable[Object]) -> tuple[Object, ...]:
    """Pods that count: neither stopping nor over. Sorted by age, oldest first."""
    counted = (
        pod
        for pod in pods
        if not being_deleted(pod)
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    )
    return tuple(sorted(counted, key=_age))


def live_pods(observed: Observed) -> tuple[Object, ...]:
    return live(observed.pods)


def ready_pods(observed: Observed) -> tuple[Object, ...]:
    return tuple(pod for pod in live_pods(observed) if is_true(pod, "Ready"))


def revision_of(live: Object) -> str:
    """Of a pod or a ReplicaSet."""
    return str((live["metadata"].get("labels") or {}).get(labels.REVISION, ""))


def template_revision(deployment: Object | None) -> str:
    """Of the template that a Deployment holds now; empty without one."""
    if deployment is None:
        return ""
    return revision_of(deployment["spec"]["template"])


def replicas_of(deployment: Object | None) -> int:
    """What the Deployment asks for now."""
    return 0 if deployment is None else int(deployment["spec"].get("replicas", 1))


def native_endpoints(observed: Observed) -> int:
    """Ready endpoints that Kubernetes itself made of pods. A missing condition means ready."""
    return sum(
        1
        for entry in observed.native_slices
        for endpoint in entry.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
    )


def is_activator_slice(entry: Object) -> bool:
    marks = entry["metadata"].get("labels") or {}
    return marks.get(labels.SLICE_MANAGED_BY) == labels.ACTIVATOR_SLICE_MANAGER


def slice_addresses(entry: Object | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    return tuple(
        sorted(
            address
            for endpoint in entry.get("endpoints") or []
            for address in endpoint["addresses"]
        )
    )


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]
