"""Manifests that the API server must refuse, and what it must say about each."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from warmgraph_api import labels

Manifest = dict[str, Any]

GOOD: Manifest = {
    "apiVersion": labels.API_VERSION,
    "kind": labels.KIND,
    "metadata": {"name": "good"},
    "spec": {"model": {"uri": "pvc://models/smollm2"}},
}


class Absent:
    """In changes: take the field away."""


ABSENT = Absent()


@dataclass(frozen=True)
class Refused:
    """The good manifest with `changes` at dotted paths, and what the refusal says."""

    title: str
    changes: dict[str, Any]
    at: str
    """Field that the message points to."""
    says: str

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True)
class Accepted:
    title: str
    changes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.title


def changed(changes: dict[str, Any], base: Manifest = GOOD) -> Manifest:
    """A copy of `base` with values at dotted paths such as `spec.scaling.minReplicas`."""
    manifest = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        target = manifest
        for parent in parents:
            target = target.setdefault(parent, {})
        if isinstance(value, Absent):
            del target[last]
        else:
            target[last] = value
    return manifest


NO_STEP = "and no step can be that large"

REFUSED = [
    # names
    Refused("name too long", {"metadata.name": "a" * 52}, "", "must have at most 51 characters"),
    Refused("name with a dot", {"metadata.name": "a.b"}, "", "since a Service gets the same name"),
    Refused("name starts with a digit", {"metadata.name": "7b"}, "", "must start with a letter"),
    # model
    Refused("no spec", {"spec": ABSENT}, "spec", "Required value"),
    Refused("no model", {"spec.model": ABSENT}, "spec.model", "Required value"),
    Refused("no uri", {"spec.model": {"revision": "v1"}}, "spec.model.uri", "Required value"),
    Refused(
        "uri of a model hub",
        {"spec.model.uri": "hf://meta-llama/Llama-3.1-8B"},
        "spec.model.uri",
        "model.uri must be pvc://CLAIM/PATH or file:///PATH",
    ),
    Refused("uri is empty", {"spec.model.uri": ""}, "spec.model.uri", "model.uri must be pvc://"),
    Refused(
        "uri with a space",
        {"spec.model.uri": "pvc://models/my model"},
        "spec.model.uri",
        "without white space",
    ),
    Refused(
        "uri climbs out of the volume",
        {"spec.model.uri": "pvc://models/../../etc"},
        "spec.model.uri",
        "model.uri must not climb out of its folder with '..'",
    ),
    Refused(
        "uri too long",
        {"spec.model.uri": "pvc://models/" + "a" * 1024},
        "spec.model.uri",
        "may not be more than 1024 bytes",
    ),
    Refused(
        "served name with a space",
        {"spec.model.servedName": "my model"},
        "spec.model.servedName",
        "model.servedName must not contain white space",
    ),
    Refused(
        "misspelt field",
        {"spec.modle": {"uri": "pvc://models/a"}},
        "",
        'unknown field "spec.modle"',
    ),
    # engine
    Refused(
        "unknown device",
        {"spec.engine.device": "gpu"},
        "spec.engine.device",
        'supported values: "cpu", "cuda"',
    ),
    Refused(
        "unknown dtype",
        {"spec.engine.dtype": "int4"},
        "spec.engine.dtype",
        'supported values: "auto", "bfloat16", "float16", "float32"',
    ),
    Refused(
        "image with a line break",
        {"spec.engine.image": "image:1\n"},
        "spec.engine.image",
        "engine.image must not contain white space",
    ),
    Refused(
        "attention backend that no device has",
        {"spec.engine.attentionBackend": "flash"},
        "spec.engine.attentionBackend",
        "can only be auto",
    ),
    Refused(
        "tensor parallelism on the CPU",
        {"spec.engine.tensorParallelSize": 2},
        "spec.engine.tensorParallelSize",
        "engine.tensorParallelSize above 1 needs engine.device: cuda",
    ),
    Refused(
        "unknown quantization",
        {"spec.engine.quantization": "int8"},
        "spec.engine.quantization",
        'supported values: "fp8", "none"',
    ),
    Refused(
        "fp8 shared by several GPUs",
        {
            "spec.engine.device": "cuda",
            "spec.engine.tensorParallelSize": 2,
            "spec.engine.quantization": "fp8",
        },
        "spec.engine.quantization",
        "do not go together: choose one",
    ),
    Refused(
        "float16 on the CPU",
        {"spec.engine.dtype": "float16"},
        "spec.engine.dtype",
        "the CPU runs float32 or bfloat16",
    ),
    Refused(
        "batch of zero",
        {"spec.engine.maxBatchSize": 0},
        "spec.engine.maxBatchSize",
        "should be greater than or equal to 1",
    ),
    Refused(
        "length as text",
        {"spec.engine.maxModelLength": "2k"},
        "spec.engine.maxModelLength",
        "must be of type integer",
    ),
    Refused(
        "KV memory that is no quantity",
        {"spec.engine.kvCache.memory": "lots"},
        "spec.engine.kvCache.memory",
        "must be a memory size above 0, such as 512Mi or 40Gi",
    ),
    Refused(
        "KV memory of zero",
        {"spec.engine.kvCache.memory": "0Gi"},
        "spec.engine.kvCache.memory",
        "must be a memory size above 0",
    ),
    Refused(
        "KV memory in thousandths of a byte",
        {"spec.engine.kvCache.memory": "500m"},
        "spec.engine.kvCache.memory",
        "must be a memory size above 0",
    ),
    Refused(
        "KV block of one position",
        {"spec.engine.kvCache.blockSize": 1},
        "spec.engine.kvCache.blockSize",
        "should be greater than or equal to 2",
    ),
    Refused(
        "KV block longer than any sequence",
        {"spec.engine.maxModelLength": 64, "spec.engine.kvCache.blockSize": 128},
        "spec.engine.kvCache.blockSize",
        "no sequence would fill a block",
    ),
    # buckets
    Refused(
        "bucket of zero",
        {"spec.buckets.decode.eager": [0, 1]},
        "spec.buckets.decode.eager[0]",
        "should be greater than or equal to 1",
    ),
    Refused(
        "negative bucket",
        {"spec.buckets.prefill.lazy": [-64]},
        "spec.buckets.prefill.lazy[0]",
        "should be greater than or equal to 1",
    ),
    Refused(
        "bucket twice in a list",
        {"spec.buckets.decode.eager": [1, 2, 2, 4]},
        "spec.buckets.decode.eager",
        "bucket sizes must not repeat",
    ),
    Refused(
        "buckets out of order",
        {"spec.buckets.decode.eager": [4, 2, 1]},
        "spec.buckets.decode.eager",
        "bucket sizes must be in ascending order",
    ),
    Refused(
        "bucket eager and lazy at once",
        {"spec.buckets.prefill": {"eager": [64], "lazy": [64, 128]}},
        "spec.buckets.prefill",
        "a bucket is either eager or lazy",
    ),
    Refused(
        "too many buckets",
        {"spec.buckets.prefill.eager": list(range(1, 66))},
        "spec.buckets.prefill.eager",
        "must have at most 64 items",
    ),
    Refused(
        "decode bucket above the batch",
        {"spec.engine.maxBatchSize": 8, "spec.buckets.decode.lazy": [16]},
        "spec.buckets.decode",
        f"a decode bucket is above engine.maxBatchSize, {NO_STEP}",
    ),
    Refused(
        "prefill bucket above the chunk",
        {"spec.engine.maxBatchTokens": 256, "spec.buckets.prefill.eager": [64, 512]},
        "spec.buckets.prefill",
        "a prefill bucket is above engine.maxBatchTokens",
    ),
    Refused(
        "verify bucket above the batch",
        {
            "spec.engine.speculative.method": "NGram",
            "spec.engine.maxBatchSize": 8,
            "spec.buckets.verify.eager": [9],
        },
        "spec.buckets.verify",
        f"a verify bucket is above engine.maxBatchSize, {NO_STEP}",
    ),
    Refused(
        "verify buckets without speculative decoding",
        {"spec.buckets.verify.eager": [1]},
        "spec.buckets.verify",
        "set engine.speculative.method or remove them",
    ),
    Refused(
        "preset and lists",
        {"spec.buckets": {"preset": "Balanced", "decode": {"lazy": [1]}}},
        "spec.buckets.preset",
        "set a preset or lists, not both",
    ),
    Refused(
        "unknown preset",
        {"spec.buckets.preset": "Huge"},
        "spec.buckets.preset",
        'supported values: "Balanced", "Full", "Minimal", "None"',
    ),
    # warmup and cache
    Refused(
        "unknown policy",
        {"spec.warmup.policy": "Hope"},
        "spec.warmup.policy",
        'supported values: "ModelLoaded", "RequireEager"',
    ),
    Refused(
        "stall timeout shorter than a report",
        {"spec.warmup.stallTimeoutSeconds": 0},
        "spec.warmup.stallTimeoutSeconds",
        "should be greater than or equal to 10",
    ),
    Refused(
        "read-only cache that nobody fills",
        {"spec.graphCache.mode": "ReadOnly"},
        "spec.graphCache.volume.claimName",
        "name their claim in graphCache.volume.claimName",
    ),
    Refused(
        "storage class for a claim that exists",
        {"spec.graphCache.volume": {"claimName": "shared", "storageClassName": "fast"}},
        "spec.graphCache.volume.storageClassName",
        "with claimName set, remove it",
    ),
    Refused(
        "claim name with capitals",
        {"spec.graphCache.volume.claimName": "Shared"},
        "spec.graphCache.volume.claimName",
        "lower case letters, digits, '-' and '.'",
    ),
    Refused(
        "unknown access mode",
        {"spec.graphCache.volume.accessMode": "ReadWriteOncePod"},
        "spec.graphCache.volume.accessMode",
        'supported values: "ReadWriteOnce", "ReadWriteMany"',
    ),
    # scaling and rollout
    Refused(
        "minimum above maximum",
        {"spec.scaling": {"minReplicas": 3, "maxReplicas": 2}},
        "spec.scaling.minReplicas",
        "scaling.minReplicas must not be above scaling.maxReplicas",
    ),
    Refused(
        "minimum above the default maximum",
        {"spec.scaling.minReplicas": 2},
        "spec.scaling.minReplicas",
        "scaling.minReplicas must not be above scaling.maxReplicas",
    ),
    Refused(
        "negative replicas",
        {"spec.replicas": -1},
        "spec.replicas",
        "should be greater than or equal to 0",
    ),
    Refused(
        "maximum of zero",
        {"spec.scaling": {"minReplicas": 0, "maxReplicas": 0}},
        "spec.scaling.maxReplicas",
        "should be greater than or equal to 1",
    ),
    Refused(
        "unknown autoscaler",
        {"spec.scaling.autoscaler": "HPA"},
        "spec.scaling.autoscaler",
        'supported values: "BuiltIn", "External", "None"',
    ),
    Refused(
        "surge and unavailable both zero",
        {"spec.rollout": {"maxSurge": 0, "maxUnavailable": 0}},
        "spec.rollout.maxSurge",
        "raise one, or use strategy Replace",
    ),
    Refused(
        "surge in percent",
        {"spec.rollout.maxSurge": "25%"},
        "spec.rollout.maxSurge",
        "must be of type integer",
    ),
    Refused(
        "rollback without history",
        {"spec.rollout": {"onFailure": "Rollback", "historyLimit": 0}},
        "spec.rollout.historyLimit",
        "rollout.historyLimit must be 1 or more",
    ),
    # pods
    Refused(
        "cpu that is no quantity",
        {"spec.template.resources.requests": {"cpu": "two"}},
        "spec.template.resources.requests[cpu]",
        "must be a quantity, such as 2, 500m or 4Gi",
    ),
    Refused(
        "memory request above its limit",
        {"spec.template.resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1G"}}},
        "spec.template.resources.requests",
        "the request for memory is above its limit: raise the limit or lower the request",
    ),
    Refused(
        "cpu request above its limit",
        {"spec.template.resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}},
        "spec.template.resources.requests",
        "the request for cpu is above its limit",
    ),
    Refused(
        "more GPUs than ranks",
        {
            "spec.engine.device": "cuda",
            "spec.template.resources.limits": {"nvidia.com/gpu": 2},
        },
        "spec.template.resources.limits",
        "must equal engine.tensorParallelSize",
    ),
    Refused(
        "cpu as a fraction without quotes",
        {"spec.template.resources.requests": {"cpu": 0.5}},
        "spec.template.resources.requests.cpu",
        "must be of type integer,string",
    ),
    Refused(
        "environment value without quotes",
        {"spec.template.env": [{"name": "THREADS", "value": 2}]},
        "spec.template.env[0].value",
        "must be of type string",
    ),
    Refused(
        "revision without quotes",
        {"spec.model.revision": 1.5},
        "spec.model.revision",
        "must be of type string",
    ),
    Refused(
        "environment without a name",
        {"spec.template.env": [{"value": "1"}]},
        "spec.template.env[0].name",
        "Required value",
    ),
    Refused(
        "environment name twice",
        {"spec.template.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        "spec.template.env[1]",
        "Duplicate value",
    ),
    Refused(
        "volume with the operator's name",
        {"spec.template.volumes": [{"name": "cache", "emptyDir": {}}]},
        "spec.template.volumes[0].name",
        "the operator gives every pod volumes named run, tmp, cache, model",
    ),
    Refused(
        "mount over the operator's own",
        {
            "spec.template.volumes": [{"name": "scratch", "emptyDir": {}}],
            "spec.template.volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
        },
        "spec.template.volumeMounts[0].mountPath",
        "the operator mounts its own volumes at /run/warmgraph, /tmp, /var/cache/warmgraph",
    ),
    *(
        Refused(
            f"mount at {path}",
            {
                "spec.template.volumes": [{"name": "scratch", "emptyDir": {}}],
                "spec.template.volumeMounts": [{"name": "scratch", "mountPath": path}],
            },
            "spec.template.volumeMounts[0].mountPath",
            "must be an absolute path without",
        )
        for path in ("/", "/tmp/", "//tmp", "/run/../tmp", "/./tmp", "/tmp/.", "scratch", "/a:b")
    ),
    Refused(
        "mount of a volume that is not there",
        {
            "spec.template.volumes": [{"name": "scratch", "emptyDir": {}}],
            "spec.template.volumeMounts": [{"name": "skratch", "mountPath": "/scratch"}],
        },
        "spec.template.volumeMounts",
        "template.volumeMounts names a volume that template.volumes does not have",
    ),
    Refused(
        "label of the operator",
        {"spec.template.labels": {"warmgraph.dev/revision": "mine"}},
        "spec.template.labels",
        "are set by the operator: use others",
    ),
    Refused(
        "annotation of the operator",
        {"spec.template.annotations": {"app.kubernetes.io/name": "mine"}},
        "spec.template.annotations",
        "are set by the operator: use others",
    ),
    Refused(
        "grace period of zero",
        {"spec.template.terminationGracePeriodSeconds": 0},
        "spec.template.terminationGracePeriodSeconds",
        "should be greater than or equal to 1",
    ),
]

ACCEPTED = [
    Accepted("nothing but a model"),
    Accepted("longest name", {"metadata.name": "a" * 51}),
    Accepted("name of one letter", {"metadata.name": "a"}),
    Accepted("model in the image", {"spec.model.uri": "file:///models/a..b"}),
    Accepted("whole claim", {"spec.model.uri": "pvc://models.v2"}),
    Accepted("no replicas", {"spec.replicas": 0, "spec.scaling.minReplicas": 0}),
    Accepted(
        "zeros that mean zero",
        {
            "spec.scaling.minReplicas": 0,
            "spec.scaling.idleSeconds": 0,
            "spec.scaling.scaleDownDelaySeconds": 0,
            "spec.scaling.activation.queueLimit": 0,
            "spec.scaling.activation.queueMebibytes": 0,
            "spec.scaling.activation.heartbeatSeconds": 0,
            "spec.rollout.historyLimit": 0,
            "spec.graphCache.retention.revisions": 0,
        },
    ),
    Accepted("replace with no surge", {"spec.rollout": {"strategy": "Replace", "maxSurge": 0}}),
    Accepted("no surge, one unavailable", {"spec.rollout": {"maxSurge": 0, "maxUnavailable": 1}}),
    Accepted(
        "largest buckets that fit",
        {"spec.buckets": {"decode": {"eager": [1, 8]}, "prefill": {"lazy": [256]}}},
    ),
    Accepted(
        "buckets kept while graphs are switched off",
        {"spec.engine.execution": "Eager", "spec.buckets.decode.eager": [1]},
    ),
    Accepted(
        "verify buckets with speculative decoding",
        {"spec.engine.speculative.method": "NGram", "spec.buckets.verify.eager": [1, 2]},
    ),
    Accepted(
        "quantities as numbers and text",
        {"spec.template.resources": {"requests": {"cpu": 2}, "limits": {"memory": "1.5Gi"}}},
    ),
    Accepted(
        "as many GPUs as ranks",
        {
            "spec.engine": {"device": "cuda", "tensorParallelSize": 2},
            "spec.template.resources.limits": {"nvidia.com/gpu": "2"},
        },
    ),
    Accepted(
        "an object that is null is like one that is absent",
        {"spec.engine": None, "spec.scaling": {"activation": None}, "spec.replicas": None},
    ),
    Accepted("whole number with a point", {"spec.engine.maxBatchSize": 4.0}),
    Accepted(
        "revision and served name in any script",
        {"spec.model.revision": "версия 2 ✓" * 11, "spec.model.servedName": "模型"},
    ),
    Accepted("KV memory in bytes", {"spec.engine.kvCache.memory": "536870912"}),
    Accepted("KV memory in part", {"spec.engine.kvCache.memory": "1.5Gi"}),
    Accepted(
        "request equal to its limit, in other units",
        {
            "spec.template.resources": {
                "requests": {"cpu": "1000m", "memory": "1024Mi"},
                "limits": {"cpu": 1, "memory": "1Gi"},
            }
        },
    ),
    Accepted(
        "pods with everything",
        {
            "spec.template": {
                "labels": {"team": "search"},
                "annotations": {"example.com/note": "x"},
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
                "tolerations": [{"operator": "Exists", "tolerationSeconds": 30}],
                "affinity": {"nodeAffinity": {}},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
                "envFrom": [{"configMapRef": {"name": "c"}}],
                "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/scratch"},
                    {"name": "model", "mountPath": "/weights", "readOnly": True},
                    {"name": "scratch", "mountPath": "/opt/..data/.cache"},
                ],
                "imagePullSecrets": [{"name": "pull"}],
                "priorityClassName": "high",
                "runtimeClassName": "nvidia",
                "schedulerName": "other",
                "terminationGracePeriodSeconds": 30,
            }
        },
    ),
    Accepted(
        "everything at its largest",
        {
            "spec.model": {"uri": "file:///" + "a" * 1016, "revision": "r" * 128},
            "spec.engine": {
                "maxBatchSize": 4096,
                "maxBatchTokens": 131_072,
                "speculative": {"method": "NGram"},
            },
            "spec.buckets": {
                kind: {"eager": list(range(1, 65)), "lazy": list(range(65, 129))}
                for kind in ("decode", "prefill", "verify")
            },
            "spec.template": {
                "labels": {f"{n:063}": "v" * 63 for n in range(64)},
                "annotations": {f"{n:063}": "v" * 1024 for n in range(64)},
                "resources": {
                    "requests": {f"example.com/{n}": "1" * 32 for n in range(12)},
                    "limits": {f"example.com/{n}": "1" * 32 for n in range(12)},
                },
                "env": [{"name": f"VARIABLE_{n:0240}", "value": "v" * 512} for n in range(256)],
                "volumes": [{"name": f"{n:063}", "emptyDir": {}} for n in range(64)],
                "volumeMounts": [
                    {"name": f"{63 - n:063}", "mountPath": f"/{n:01000}"} for n in range(64)
                ],
            },
        },
    ),
    Accepted(
        "environment from a secret",
        {
            "spec.template.env": [
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
            ]
        },
    ),
]
