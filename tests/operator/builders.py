"""Objects as the API server and the sidecars give them, as small as a test needs them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from warmgraph_api import labels
from warmgraph_api.report import (
    Bucket,
    BucketMode,
    BucketState,
    Cache,
    CacheResult,
    Fault,
    Load,
    PodState,
    Span,
    Stage,
    StepKind,
    WarmupReport,
)
from warmgraph_operator.config import Config
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import Observed
from warmgraph_operator.resource import InferenceDeployment, decode

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
UID = "uid-of-tiny"
CONFIG = Config(engine_image="engine:1", sidecar_image="sidecar:1")


def infd(
    *, name: str = "tiny", uid: str = UID, status: Object | None = None, **spec: Any
) -> InferenceDeployment:
    return decode(
        {
            "metadata": {"name": name, "namespace": "space", "uid": uid, "generation": 7},
            "spec": {"model": {"uri": "file:///models/tiny"}, **spec},
            "status": status or {},
        }
    )


def owner(uid: str = UID, name: str = "tiny") -> list[Object]:
    return [{"kind": labels.KIND, "name": name, "uid": uid, "controller": True}]


def deployment(
    *, revision: str = "r1", replicas: int = 1, conditions: Mapping[str, Object] | None = None
) -> Object:
    """conditions: by type, without the type."""
    found = [{"type": kind, **entry} for kind, entry in (conditions or {}).items()]
    return {
        "metadata": {"name": "tiny", "generation": 1, "ownerReferences": owner()},
        "spec": {
            "replicas": replicas,
            "template": {"metadata": {"labels": {labels.REVISION: revision}}, "spec": {}},
        },
        "status": {"observedGeneration": 1, "conditions": found},
    }


def pod(
    name: str = "tiny-1",
    *,
    revision: str = "r1",
    ready: bool = True,
    created: str = "2026-01-01T11:00:00Z",
    stopping: bool = False,
    phase: str = "Running",
    **status: Any,
) -> Object:
    metadata: Object = {
        "name": name,
        "labels": {labels.REVISION: revision},
        "creationTimestamp": created,
    }
    if stopping:
        metadata["deletionTimestamp"] = created
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True" if ready else "False"},
    ]
    return {
        "metadata": metadata,
        "status": {"phase": phase, "podIP": "10.0.0.1", "conditions": conditions, **status},
    }


def container(
    name: str = "engine",
    *,
    state: Object | None = None,
    last: Object | None = None,
    restarts: int = 0,
) -> list[Object]:
    """Statuses with this one. state: as in the pod; last: how the run before ended."""
    return [
        {
            "name": name,
            "image": "engine:1",
            "restartCount": restarts,
            "state": state or {"running": {}},
            "lastState": {"terminated": last} if last else {},
        }
    ]


def bucket(
    size: int,
    state: BucketState = BucketState.CAPTURED,
    mode: BucketMode = BucketMode.EAGER,
    reason: str = "",
) -> Bucket:
    return Bucket(kind=StepKind.DECODE, size=size, mode=mode, state=state, reason=reason)


def report(*buckets: Bucket, **changes: Any) -> WarmupReport:
    settings: dict[str, Any] = {
        "boot_id": "boot",
        "sequence": 5,
        "progress": 5,
        "stage": Stage.SERVING,
        "started_at": 1.0,
        "ready_seconds": 2.0,
        "buckets": list(buckets or (bucket(1), bucket(2))),
        "cache": Cache(result=CacheResult.HIT, key="abc"),
        "timeline": [
            Span(name="load", start_seconds=0.1, seconds=1.0),
            Span(name="lazy", start_seconds=9.0, seconds=1.0),
        ],
    }
    return WarmupReport(**{**settings, **changes})


def state(*buckets: Bucket, **changes: Any) -> PodState:
    """Of a ready pod; `report` in changes replaces the report."""
    settings: dict[str, Any] = {
        "ready": True,
        "reason": "GraphsCaptured",
        "message": "eager buckets 2/2",
        "engine_connected": True,
        "ready_at": NOW.timestamp() - 3590,
        "report": report(*buckets),
    }
    return PodState(**{**settings, **changes})


def warming(*buckets: Bucket, **changes: Any) -> PodState:
    """Of a pod that captures."""
    settings: dict[str, Any] = {
        "ready": False,
        "reason": "WarmingUp",
        "message": "Capturing, eager buckets 1/2",
        "ready_at": None,
        "report": report(
            *(buckets or (bucket(1), bucket(2, BucketState.PENDING))),
            stage=Stage.CAPTURING,
            ready_seconds=None,
        ),
    }
    return state(**{**settings, **changes})


def faulty(reason: str = "EngineFault", **changes: Any) -> PodState:
    fault = report(fault=Fault(reason="CudaError", message="illegal address"))
    text = "CudaError: illegal address"
    return state(**{"ready": False, "reason": reason, "message": text, "report": fault, **changes})


def observed(*pods: Object, **changes: Any) -> Observed:
    """With a Deployment of revision r1 for as many pods as given, unless told otherwise, and a
    warm report of every ready pod."""
    settings: dict[str, Any] = {
        "now": NOW,
        "deployment": deployment(replicas=len(pods)),
        "pods": pods,
        "reports": {
            p["metadata"]["name"]: state()
            for p in pods
            if any(
                c["type"] == "Ready" and c["status"] == "True" for c in p["status"]["conditions"]
            )
        },
    }
    return Observed(**{**settings, **changes})


def load(in_flight: int = 0, idle: float = 0.0) -> Load:
    return Load(running=in_flight, idle_seconds=idle)
