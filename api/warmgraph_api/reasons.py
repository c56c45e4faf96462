"""Conditions and their reasons: the words that programs may rely on.

Conditions follow the Kubernetes API conventions: `type` says what is true or not, `reason` is
one CamelCase word a program can match, `message` is for the person who must act.
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """Conditions of an InferenceDeployment."""

    READY = "Ready"
    """Summary: it does what was asked of it. True at zero replicas on purpose."""
    SERVING = "Serving"
    """Some revision answers; stays True through a rollout."""
    WARM = "Warm"
    """Every pod of the current revision has its eager buckets."""
    UP_TO_DATE = "UpToDate"
    """Every pod runs the current revision."""
    PROGRESSING = "Progressing"
    """Something is on its way: a rollout, a scale-up, a wake-up."""


class Reason(StrEnum):
    """Reasons of conditions and events."""

    # healthy
    ALL_REPLICAS_READY = "AllReplicasReady"
    SCALED_TO_ZERO = "ScaledToZero"
    GRAPHS_CAPTURED = "GraphsCaptured"
    NO_EAGER_BUCKETS = "NoEagerBuckets"
    CURRENT_REVISION = "CurrentRevision"
    STABLE = "Stable"
    # on its way
    STARTING = "Starting"
    WARMING_UP = "WarmingUp"
    ROLLING_OUT = "RollingOut"
    SCALING = "Scaling"
    WAKING = "Waking"
    DRAINING = "Draining"
    PAUSED = "Paused"
    DEGRADED_BUCKETS = "DegradedBuckets"
    PARTIALLY_READY = "PartiallyReady"
    # someone must act
    NO_READY_REPLICA = "NoReadyReplica"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    ENGINE_CRASH_LOOPING = "EngineCrashLooping"
    OUT_OF_MEMORY = "OutOfMemory"
    UNSCHEDULABLE = "Unschedulable"
    STORAGE_CLASS_MISSING = "StorageClassMissing"
    CLAIM_PENDING = "ClaimPending"
    CLAIM_MISSING = "ClaimMissing"
    POD_REJECTED = "PodRejected"
    WARMUP_STALLED = "WarmupStalled"
    WARMUP_FAILED = "WarmupFailed"
    ENGINE_FAULT = "EngineFault"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    ROLLED_BACK = "RolledBack"
    CONFLICTING_AUTOSCALER = "ConflictingAutoscaler"
    NAME_CONFLICT = "NameConflict"
    APPLY_FAILED = "ApplyFailed"
    # events on transitions
    CACHE_HIT = "GraphCacheHit"
    CACHE_MISS = "GraphCacheMiss"
    CACHE_REFUSED = "GraphCacheRefused"
    SCALED = "Scaled"
