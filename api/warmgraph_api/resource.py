"""The spec of an InferenceDeployment: what a user declares.

Defaults live here and nowhere else: the CRD is generated from these types (crd.py), and the
operator decodes objects into them, so that both always see the same ones. Rules that span
fields are CEL expressions beside the type they belong to; the API server checks them.

A number of 0 means zero. "Not set" is None or an absent field, never 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType


class Resource(msgspec.Struct, rename="camel", frozen=True):
    """Base of every type in the resource: camelCase on the wire, immutable in the program."""


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """Schema extension with CEL rules, each a pair of (expression, message for the user)."""
    return {
        "x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]
    }


def embedded(kind: str) -> Meta:
    """An object of a core Kubernetes type, which the API server checks when it becomes a pod."""
    return Meta(
        description=kind,
        extra_json_schema={"x-kubernetes-preserve-unknown-fields": True},
    )


# --- model -------------------------------------------------------------------------------

URI_PATTERN = "^(file:///[^ ]+|pvc://[a-z0-9]([-a-z0-9]*[a-z0-9])?(/[^ ]*)?)$"


class Model(Resource, frozen=True, kw_only=True):
    """Which checkpoint is served, and under which name."""

    uri: Annotated[
        str,
        Meta(
            max_length=1024,
            description=(
                "Folder of a Hugging Face checkpoint: `pvc://CLAIM/PATH` for a folder on a "
                "PersistentVolumeClaim of the same namespace, or `file:///PATH` for one that the "
                "image (or a volume of `template`) carries."
            ),
            extra_json_schema=rules(
                (
                    f"self.matches('{URI_PATTERN}')",
                    "model.uri must be pvc://CLAIM/PATH or file:///PATH",
                ),
                ("!self.contains('..')", "model.uri must not contain '..'"),
            ),
        ),
    ]
    revision: Annotated[
        str,
        Meta(
            max_length=128,
            description=(
                "Free text that names this version of the model, for example a commit. Changing "
                "it rolls the pods, also when the URI stays the same."
            ),
        ),
    ] = ""
    served_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="Name of the model in the OpenAI API; the resource's own name if empty.",
        ),
    ] = ""


# --- engine ------------------------------------------------------------------------------


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


class DType(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Quantization(StrEnum):
    NONE = "none"
    FP8 = "fp8"


class Execution(StrEnum):
    GRAPHS = "Graphs"
    EAGER = "Eager"


class KVCache(Resource, frozen=True, kw_only=True):
    """The paged KV cache."""

    block_size: Annotated[int, Meta(ge=1, le=256, description="Positions in one block.")] = 16
    memory: Annotated[
        str,
        Meta(
            pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
            max_length=32,
            description="Memory for all blocks, as a quantity such as 512Mi or 40Gi.",
        ),
    ] = "512Mi"


class SpeculativeMethod(StrEnum):
    NONE = "None"
    NGRAM = "NGram"


class Speculative(Resource, frozen=True, kw_only=True):
    """Speculative decoding: drafts that the model verifies in one step."""

    method: SpeculativeMethod = SpeculativeMethod.NONE
    tokens: Annotated[int, Meta(ge=1, le=16, description="Draft tokens per step.")] = 4


class Engine(Resource, frozen=True, kw_only=True):
    """How the model is run. Every field is part of the graph cache key or decides pod shape."""

    image: Annotated[
        str, Meta(max_length=512, description="Engine image; the operator's default if empty.")
    ] = ""
    device: Annotated[Device, Meta(description="Where the model runs.")] = Device.CPU
    execution: Annotated[
        Execution,
        Meta(description="Graphs, or Eager to switch graphs off altogether."),
    ] = Execution.GRAPHS
    dtype: Annotated[
        DType,
        Meta(description="auto: float32 on the CPU, the checkpoint's own type on a GPU."),
    ] = DType.AUTO
    quantization: Quantization = Quantization.NONE
    attention_backend: Annotated[
        str, Meta(max_length=64, description="Attention kernels; auto picks by device.")
    ] = "auto"
    tensor_parallel_size: Annotated[
        int, Meta(ge=1, le=64, description="GPUs that share one replica.")
    ] = 1
    max_model_length: Annotated[
        int,
        Meta(ge=16, le=1_048_576, description="Longest prompt plus answer, in tokens."),
    ] = 2048
    max_batch_size: Annotated[
        int, Meta(ge=1, le=4096, description="Most sequences in one step.")
    ] = 8
    max_batch_tokens: Annotated[
        int, Meta(ge=1, le=131_072, description="Most prompt tokens in one prefill chunk.")
    ] = 256
    kv_cache: KVCache = msgspec.field(default_factory=KVCache)
    speculative: Speculative = msgspec.field(default_factory=Speculative)


ENGINE_RULES = rules(
    (
        "self.device == 'cuda' || self.tensorParallelSize == 1",
        "engine.tensorParallelSize above 1 needs engine.device: cuda",
    ),
    (
        "self.device == 'cuda' || self.quantization == 'none'",
        "engine.quantization needs engine.device: cuda",
    ),
    (
        "self.device == 'cuda' || self.dtype != 'float16'",
        "engine.dtype float16 needs engine.device: cuda; the CPU runs float32 or bfloat16",
    ),
)


# --- buckets -----------------------------------------------------------------------------

BucketSizes = Annotated[
    list[Annotated[int, Meta(ge=1, le=131_072)]],
    Meta(
        max_length=64,
        extra_json_schema=rules(
            (
                "self.all(i, self.exists_one(j, i == j))",
                "bucket sizes must not repeat",
            ),
            (
                "self.isSorted()",
                "bucket sizes must be in ascending order",
            ),
        ),
    ),
]


class StepBuckets(Resource, frozen=True, kw_only=True):
    """Buckets of one kind of step."""

    eager: Annotated[
        BucketSizes, Meta(description="Captured or restored before the pod is ready.")
    ] = []
    lazy: Annotated[
        BucketSizes,
        Meta(description="Captured after readiness, beside the traffic, within the budget."),
    ] = []


STEP_BUCKETS_RULES = rules(
    (
        "!self.eager.exists(e, self.lazy.exists(l, l == e))",
        "a bucket is either eager or lazy: the same size stands in both lists",
    ),
)


class BucketPreset(StrEnum):
    NONE = "None"
    MINIMAL = "Minimal"
    BALANCED = "Balanced"
    FULL = "Full"


class Buckets(Resource, frozen=True, kw_only=True):
    """Shapes that graphs are captured for.

    decode sizes count sequences, prefill sizes count prompt tokens of one chunk, verify sizes
    count sequences of a speculative step. A step that fits no bucket exactly takes the next
    larger one with padding, or runs eagerly; both are counted.
    """

    preset: Annotated[
        BucketPreset,
        Meta(
            description=(
                "Lists derived from the engine's limits instead of written out. Minimal: decode 1. "
                "Balanced: powers of two, the larger ones lazy. Full: powers of two, all eager."
            )
        ),
    ] = BucketPreset.NONE
    decode: Annotated[StepBuckets, Meta(extra_json_schema=STEP_BUCKETS_RULES)] = msgspec.field(
        default_factory=StepBuckets
    )
    prefill: Annotated[StepBuckets, Meta(extra_json_schema=STEP_BUCKETS_RULES)] = msgspec.field(
        default_factory=StepBuckets
    )
    verify: Annotated[StepBuckets, Meta(extra_json_schema=STEP_BUCKETS_RULES)] = msgspec.field(
        default_factory=StepBuckets
    )


BUCKETS_RULES = rules(
    (
        "self.preset == 'None' || (size(self.decode.eager) + size(self.decode.lazy)"
        " + size(self.prefill.eager) + size(self.prefill.lazy)"
        " + size(self.verify.eager) + size(self.verify.lazy) == 0)",
        "buckets.preset replaces the lists: set a preset or lists, not both",
    ),
)


# --- warmup ------------------------------------------------------------------------------


class WarmupPolicy(StrEnum):
    REQUIRE_EAGER = "RequireEager"
    MODEL_LOADED = "ModelLoaded"


class WarmupOrder(StrEnum):
    LARGEST_FIRST = "LargestFirst"
    SMALLEST_FIRST = "SmallestFirst"
    LEARNED = "Learned"


class OnCaptureFailure(StrEnum):
    FALLBACK = "Fallback"
    FAIL = "Fail"


class LazyCapture(Resource, frozen=True, kw_only=True):
    """What lazy capture may cost."""

    enabled: bool = True
    max_busy_percent: Annotated[
        int,
        Meta(ge=1, le=100, description="Share of time that capturing may take beside traffic."),
    ] = 10


class Warmup(Resource, frozen=True, kw_only=True):
    """When a pod counts as warm."""

    policy: Annotated[
        WarmupPolicy,
        Meta(
            description=(
                "RequireEager: ready once every eager bucket is captured or restored. "
                "ModelLoaded: ready once the model answers; buckets follow beside the traffic."
            )
        ),
    ] = WarmupPolicy.REQUIRE_EAGER
    order: WarmupOrder = WarmupOrder.LARGEST_FIRST
    on_failure: Annotated[
        OnCaptureFailure,
        Meta(
            description=(
                "What a failed eager capture means. Fallback: its steps run eagerly and the pod "
                "becomes ready. Fail: the pod never becomes ready and says which bucket failed."
            )
        ),
    ] = OnCaptureFailure.FALLBACK
    stall_timeout_seconds: Annotated[
        int,
        Meta(
            ge=10,
            le=86_400,
            description=(
                "Restart the engine if its warmup makes no progress for this long. A warmup that "
                "moves may take as long as it needs."
            ),
        ),
    ] = 300
    lazy_capture: LazyCapture = msgspec.field(default_factory=LazyCapture)
    known_answer_check: Annotated[
        bool,
        Meta(description="Compare graphs with eager execution on a fixed prompt before ready."),
    ] = True


# --- graph cache -------------------------------------------------------------------------


class CacheMode(StrEnum):
    READ_WRITE = "ReadWrite"
    READ_ONLY = "ReadOnly"
    DISABLED = "Disabled"


class CacheVolume(Resource, frozen=True, kw_only=True):
    """Where stored graphs live."""

    claim_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="An existing claim to use; the operator creates one if empty.",
        ),
    ] = ""
    storage_class_name: Annotated[
        str,
        Meta(max_length=253, description="Class of the created claim; the default one if empty."),
    ] = ""
    access_mode: Annotated[
        str,
        Meta(
            extra_json_schema={"enum": ["ReadWriteOnce", "ReadWriteMany"]},
            description="ReadWriteOnce keeps all replicas on one node.",
        ),
    ] = "ReadWriteMany"
    size: Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti)?$", max_length=32)] = "2Gi"


class CacheRetention(Resource, frozen=True, kw_only=True):
    """What is kept of entries that no current revision uses."""

    revisions: Annotated[
        int, Meta(ge=0, le=100, description="Unused entries kept, newest first.")
    ] = 3


class GraphCache(Resource, frozen=True, kw_only=True):
    """Captured graphs kept for the next pod."""

    mode: CacheMode = CacheMode.READ_WRITE
    volume: CacheVolume = msgspec.field(default_factory=CacheVolume)
    retention: CacheRetention = msgspec.field(default_factory=CacheRetention)


# --- scaling -----------------------------------------------------------------------------


class Autoscaler(StrEnum):
    BUILT_IN = "BuiltIn"
    EXTERNAL = "External"
    NONE = "None"


class Activation(Resource, frozen=True, kw_only=True):
    """What happens to requests that arrive at zero replicas."""

    timeout_seconds: Annotated[
        int, Meta(ge=1, le=3600, description="Longest a request is held before it gets a 503.")
    ] = 300
    queue_limit: Annotated[
        int, Meta(ge=0, le=100_000, description="Most requests held at once; further ones get 429.")
    ] = 1000
    queue_mebibytes: Annotated[
        int, Meta(ge=0, le=65_536, description="Most bytes of held request bodies, in MiB.")
    ] = 64
    heartbeat_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=300,
            description=(
                "Send a comment to waiting streaming callers this often, so that proxies keep the "
                "connection; 0 sends none."
            ),
        ),
    ] = 10


class Scaling(Resource, frozen=True, kw_only=True):
    """Who decides the number of replicas, within which bounds."""

    autoscaler: Annotated[
        Autoscaler,
        Meta(
            description=(
                "BuiltIn: by requests in flight. External: an HPA or KEDA writes /scale. "
                "None: only people write replicas. A request at zero wakes the deployment always."
            )
        ),
    ] = Autoscaler.BUILT_IN
    min_replicas: Annotated[int, Meta(ge=0, le=1000)] = 1
    max_replicas: Annotated[int, Meta(ge=1, le=1000)] = 1
    target_in_flight: Annotated[
        int, Meta(ge=1, le=100_000, description="Requests in flight that one replica should have.")
    ] = 8
    idle_seconds: Annotated[
        int,
        Meta(ge=0, le=604_800, description="Scale to zero after this long without a request."),
    ] = 300
    scale_down_delay_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Remove a replica only when fewer sufficed for this long.",
        ),
    ] = 60
    activation: Activation = msgspec.field(default_factory=Activation)


SCALING_RULES = rules(
    (
        "self.minReplicas <= self.maxReplicas",
        "scaling.minReplicas must not be above scaling.maxReplicas",
    ),
)


# --- rollout -----------------------------------------------------------------------------


class RolloutStrategy(StrEnum):
    SURGE = "Surge"
    REPLACE = "Replace"


class OnRolloutFailure(StrEnum):
    HOLD = "Hold"
    ROLLBACK = "Rollback"


class Rollout(Resource, frozen=True, kw_only=True):
    """How a changed revision replaces the running one."""

    strategy: Annotated[
        RolloutStrategy,
        Meta(
            description=(
                "Surge: new pods first, old ones leave once the new are warm. Replace: old pods "
                "leave first, for nodes with no spare GPU."
            )
        ),
    ] = RolloutStrategy.SURGE
    max_surge: Annotated[int, Meta(ge=0, le=1000)] = 1
    max_unavailable: Annotated[int, Meta(ge=0, le=1000)] = 0
    progress_deadline_seconds: Annotated[
        int,
        Meta(
            ge=10,
            le=86_400,
            description="Say that a rollout fails when nothing moved for this long.",
        ),
    ] = 600
    on_failure: OnRolloutFailure = OnRolloutFailure.HOLD
    history_limit: Annotated[int, Meta(ge=0, le=100)] = 3


ROLLOUT_RULES = rules(
    (
        "self.strategy != 'Surge' || self.maxSurge > 0 || self.maxUnavailable > 0",
        "rollout.maxSurge and rollout.maxUnavailable are both 0: the rollout could never start",
    ),
)


# --- pod template ------------------------------------------------------------------------


class Resources(Resource, frozen=True, kw_only=True):
    """Resources of the engine's container."""

    requests: dict[str, int | str] = {}
    limits: dict[str, int | str] = {}


class Template(Resource, frozen=True, kw_only=True):
    """What else the model pods need: resources, placement, environment, volumes."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    resources: Resources = msgspec.field(default_factory=Resources)
    node_selector: dict[str, str] = {}
    tolerations: list[Annotated[dict[str, Any], embedded("Toleration")]] = []
    affinity: Annotated[dict[str, Any], embedded("Affinity")] = {}
    topology_spread_constraints: list[
        Annotated[dict[str, Any], embedded("TopologySpreadConstraint")]
    ] = []
    env: list[Annotated[dict[str, Any], embedded("EnvVar")]] = []
    env_from: list[Annotated[dict[str, Any], embedded("EnvFromSource")]] = []
    volumes: list[Annotated[dict[str, Any], embedded("Volume")]] = []
    volume_mounts: list[Annotated[dict[str, Any], embedded("VolumeMount")]] = []
    image_pull_secrets: list[Annotated[dict[str, Any], embedded("LocalObjectReference")]] = []
    priority_class_name: str = ""
    runtime_class_name: str = ""
    scheduler_name: str = ""
    termination_grace_period_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Longest that a stopping pod may finish the requests it has.",
        ),
    ] = 120


# --- the whole ---------------------------------------------------------------------------


class Spec(Resource, frozen=True, kw_only=True):
    """`spec` of an InferenceDeployment."""

    model: Model
    engine: Annotated[Engine, Meta(extra_json_schema=ENGINE_RULES)] = msgspec.field(
        default_factory=Engine
    )
    buckets: Annotated[Buckets, Meta(extra_json_schema=BUCKETS_RULES)] = msgspec.field(
        default_factory=Buckets
    )
    warmup: Warmup = msgspec.field(default_factory=Warmup)
    graph_cache: GraphCache = msgspec.field(default_factory=GraphCache)
    replicas: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description=(
                "Pods wanted. Written through /scale by the autoscaler, the activator or "
                "`kubectl scale`; leave it out of manifests that are applied again and again."
            ),
        ),
    ] = 1
    scaling: Annotated[Scaling, Meta(extra_json_schema=SCALING_RULES)] = msgspec.field(
        default_factory=Scaling
    )
    rollout: Annotated[Rollout, Meta(extra_json_schema=ROLLOUT_RULES)] = msgspec.field(
        default_factory=Rollout
    )
    paused: Annotated[
        bool, Meta(description="Change nothing but status until this is false again.")
    ] = False
    template: Template = msgspec.field(default_factory=Template)


SPEC_RULES = rules(
    (
        "(self.buckets.decode.eager + self.buckets.decode.lazy)"
        ".all(b, b <= self.engine.maxBatchSize)",
        "a decode bucket is above engine.maxBatchSize: no step can be that large",
    ),
    (
        "(self.buckets.verify.eager + self.buckets.verify.lazy)"
        ".all(b, b <= self.engine.maxBatchSize)",
        "a verify bucket is above engine.maxBatchSize: no step can be that large",
    ),
    (
        "(self.buckets.prefill.eager + self.buckets.prefill.lazy)"
        ".all(b, b <= self.engine.maxBatchTokens)",
        "a prefill bucket is above engine.maxBatchTokens: no chunk can be that large",
    ),
    (
        "self.engine.speculative.method != 'None'"
        " || size(self.buckets.verify.eager) + size(self.buckets.verify.lazy) == 0",
        "verify buckets need engine.speculative.method",
    ),
)


class ObjectMeta(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The metadata that the operator and the activator read."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str | UnsetType = UNSET
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
