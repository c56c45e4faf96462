"""The pod template of one revision."""

from __future__ import annotations

from typing import Any

from warmgraph_api import labels, ports
from warmgraph_api.resource import CacheMode, Device, Spec, Template
from warmgraph_operator.config import Config
from warmgraph_operator.desired.flags import engine_flags, sidecar_flags
from warmgraph_operator.desired.metadata import claim_name, common_labels
from warmgraph_operator.desired.model import model_claim
from warmgraph_operator.kinds import Object
from warmgraph_operator.resource import InferenceDeployment

ENGINE_CONTAINER = "engine"
SIDECAR_CONTAINER = "sidecar"
GPU_RESOURCE = "nvidia.com/gpu"

_RESTRICTED: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
# Measured under 60 MB; the limit leaves room for a report of thousands of buckets.
_SIDECAR_RESOURCES: Object = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"memory": "128Mi"},
}


def pod_template(infd: InferenceDeployment, *, revision: str, config: Config) -> Object:
    """What the spec asks for, as a PodTemplateSpec."""
    spec, template = infd.spec, infd.spec.template
    pod: Object = {
        "serviceAccountName": infd.name,
        "automountServiceAccountToken": False,
        # Services of the namespace as variables: nothing here reads them, and a few thousand of
        # them make a container's start fail.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds,
        "securityContext": _pod_security(config) | template.security_context,
        "initContainers": [_sidecar(spec, config)],
        "containers": [_engine(infd, revision, config)],
        "volumes": _volumes(infd),
        **_placement(template),
    }
    return {
        "metadata": {
            "labels": {
                **template.labels,
                **common_labels(infd),
                labels.COMPONENT: "model",
                labels.REVISION: revision,
            },
            "annotations": {
                "kubectl.kubernetes.io/default-container": ENGINE_CONTAINER,
                **template.annotations,
            },
        },
        "spec": pod,
    }


def _pod_security(config: Config) -> Object:
    """No fixed user: the images run under any non-root id, also one that the platform picks."""
    security: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if config.pod_fs_group is not None:
        # OnRootMismatch: a cache of many files is not walked at every start.
        security |= {"fsGroup": config.pod_fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    return security


def _probe(path: str, **timing: int) -> Object:
    return {"httpGet": {"path": path, "port": ports.SIDECAR_PORT}, **timing}


def _sidecar(spec: Spec, config: Config) -> Object:
    """A native sidecar: an init container that goes on running, started before the engine and
    stopped after it. Its probes never depend on the engine."""
    return {
        "name": SIDECAR_CONTAINER,
        "image": config.sidecar_image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["warmgraph-sidecar"],
        "args": _literally(sidecar_flags(spec)),
        "restartPolicy": "Always",
        "ports": [{"name": "sidecar", "containerPort": ports.SIDECAR_PORT}],
        # It listens within a second, so that an earlier question is only a warning in everybody's
        # events; a minute allows for a node that is very busy.
        "startupProbe": _probe(
            "/healthz",
            initialDelaySeconds=1,
            periodSeconds=1,
            timeoutSeconds=2,
            failureThreshold=60,
        ),
        "livenessProbe": _probe("/healthz", periodSeconds=5, timeoutSeconds=3, failureThreshold=3),
        "resources": _SIDECAR_RESOURCES,
        "securityContext": _RESTRICTED,
        "volumeMounts": [_mount("run", ports.RUN_DIRECTORY), _mount("tmp", "/tmp")],  # noqa: S108
    }


def _engine(infd: InferenceDeployment, revision: str, config: Config) -> Object:
    spec = infd.spec
    container: Object = {
        "name": ENGINE_CONTAINER,
        "image": spec.engine.image or config.engine_image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["warmgraph-engine"],
        "args": _literally(
            engine_flags(spec, namespace=infd.metadata.namespace, name=infd.name, revision=revision)
        ),
        "env": _environment(spec.template),
        "ports": [{"name": ports.PORT_NAME, "containerPort": ports.ENGINE_PORT}],
        # Asked every second, so that a captured pod is in the Service within two; two misses in
        # a row, so that one slow answer of a busy node takes no pod out.
        "readinessProbe": _probe("/readyz", periodSeconds=1, timeoutSeconds=2, failureThreshold=2),
        # The sidecar answers 503 only once the engine is beyond help; three misses in a row
        # also cover a restart of the sidecar itself.
        "livenessProbe": _probe("/livez", periodSeconds=5, timeoutSeconds=3, failureThreshold=3),
        "lifecycle": {
            "preStop": {"httpGet": {"path": "/drain", "port": ports.SIDECAR_PORT}},
        },
        "resources": _resources(spec),
        "securityContext": _RESTRICTED,
        # A crash's last lines reach the pod's status, and from there the conditions.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _engine_mounts(infd),
    }
    if spec.template.env_from:
        container["envFrom"] = spec.template.env_from
    return container


def _environment(template: Template) -> list[dict[str, Any]]:
    """A user's own HOME wins; without one, a random user id would have none."""
    home = [] if any(v.get("name") == "HOME" for v in template.env) else [_HOME]
    return [*home, *template.env]


_HOME: Object = {"name": "HOME", "value": "/tmp"}  # noqa: S108 - an emptyDir of this pod


def _resources(spec: Spec) -> Object:
    """As declared; with device cuda and no GPU declared, as many as the replica's ranks."""
    declared = spec.template.resources
    limits = dict(declared.limits)
    names_gpu = any("gpu" in name or "/mig-" in name for name in (*limits, *declared.requests))
    if spec.engine.device is Device.CUDA and not names_gpu:
        limits[GPU_RESOURCE] = spec.engine.tensor_parallel_size
    pairs = {"requests": dict(declared.requests), "limits": limits}
    return {name: values for name, values in pairs.items() if values}


def _literally(flags: list[str]) -> list[str]:
    """Flags that arrive as they are: a kubelet puts variables in for $(NAME), and $ for $$."""
    return [flag.replace("$", "$$") for flag in flags]


def _mount(name: str, path: str, *, read_only: bool = False) -> Object:
    return {"name": name, "mountPath": path} | ({"readOnly": True} if read_only else {})


def _engine_mounts(infd: InferenceDeployment) -> list[Object]:
    spec = infd.spec
    mounts = [_mount("run", ports.RUN_DIRECTORY), _mount("tmp", "/tmp")]  # noqa: S108
    if spec.graph_cache.mode is not CacheMode.DISABLED:
        read_only = spec.graph_cache.mode is CacheMode.READ_ONLY
        mounts.append(_mount("cache", ports.CACHE_DIRECTORY, read_only=read_only))
    claim = model_claim(spec.model.uri)
    if claim:
        mounts.append(_mount("model", f"{ports.MODEL_DIRECTORY}/{claim}", read_only=True))
    return [*mounts, *spec.template.volume_mounts]


def _volumes(infd: InferenceDeployment) -> list[Object]:
    spec = infd.spec
    volumes: list[Object] = [{"name": "run", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    if spec.graph_cache.mode is not CacheMode.DISABLED:
        volumes.append(
            {"name": "cache", "persistentVolumeClaim": {"claimName": claim_name(infd)}},
        )
    claim = model_claim(spec.model.uri)
    if claim:
        source = {"claimName": claim, "readOnly": True}
        volumes.append({"name": "model", "persistentVolumeClaim": source})
    return [*volumes, *spec.template.volumes]


def _placement(template: Template) -> Object:
    fields = {
        "nodeSelector": template.node_selector,
        "tolerations": template.tolerations,
        "affinity": template.affinity,
        "topologySpreadConstraints": template.topology_spread_constraints,
        "imagePullSecrets": template.image_pull_secrets,
        "priorityClassName": template.priority_class_name,
        "runtimeClassName": template.runtime_class_name,
        "schedulerName": template.scheduler_name,
    }
    return {name: value for name, value in fields.items() if value}
