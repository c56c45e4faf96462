"""InferenceDeployments and pods as the API server shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from warmgraph_activator.objects import Deployment, Pod
from warmgraph_api import labels


def resource(name: str, *, port: int = 0, replicas: int = 0, **activation: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {
            "replicas": replicas,
            "engine": {"maxBatchSize": 8},
            "scaling": {"minReplicas": 0, "activation": activation},
        },
        "status": {"activator": {"port": port}, "conditions": []},
    }


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 99,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def pod(
    name: str, ip: str, *, of: str = "llm", ready: bool = False, **changes: Any
) -> dict[str, Any]:
    value: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "labels": {labels.DEPLOYMENT: of}},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    value["metadata"] |= changes
    return value


def deployment(*conditions: dict[str, Any], replicas: int = 1, **activation: Any) -> Deployment:
    value = resource("llm", replicas=replicas, **activation)
    value["status"]["conditions"] = list(conditions)
    return msgspec.convert(value, Deployment)


def model_pod(name: str, ip: str = "10.0.0.1", *, ready: bool = False, **changes: Any) -> Pod:
    return msgspec.convert(pod(name, ip, ready=ready, **changes), Pod)
