"""The spec of an InferenceDeployment: what a user declares.

Defaults live here and nowhere else: the CRD is generated from these types (crd.py), and the
operator decodes objects into them, so that both always see the same ones. Rules that span
fields are CEL expressions beside the type they belong to; the API server checks them.

A number of 0 means zero. "Not set" is None or an absent field, never 0.
"""

from warmgraph_api.resource.base import Resource
from warmgraph_api.resource.buckets import BucketPreset, Buckets, StepBuckets
from warmgraph_api.resource.engine import (
    Device,
    DType,
    Engine,
    Execution,
    KVCache,
    Quantization,
    Speculative,
    SpeculativeMethod,
)
from warmgraph_api.resource.graphcache import CacheMode, CacheRetention, CacheVolume, GraphCache
from warmgraph_api.resource.metadata import ObjectMeta
from warmgraph_api.resource.model import Model
from warmgraph_api.resource.rollout import OnRolloutFailure, Rollout, RolloutStrategy
from warmgraph_api.resource.scaling import Activation, Autoscaler, Scaling
from warmgraph_api.resource.spec import Spec
from warmgraph_api.resource.template import Resources, Template
from warmgraph_api.resource.warmup import (
    LazyCapture,
    OnCaptureFailure,
    Warmup,
    WarmupOrder,
    WarmupPolicy,
)

__all__ = [
    "Activation",
    "Autoscaler",
    "BucketPreset",
    "Buckets",
    "CacheMode",
    "CacheRetention",
    "CacheVolume",
    "DType",
    "Device",
    "Engine",
    "Execution",
    "GraphCache",
    "KVCache",
    "LazyCapture",
    "Model",
    "ObjectMeta",
    "OnCaptureFailure",
    "OnRolloutFailure",
    "Quantization",
    "Resource",
    "Resources",
    "Rollout",
    "RolloutStrategy",
    "Scaling",
    "Spec",
    "Speculative",
    "SpeculativeMethod",
    "StepBuckets",
    "Template",
    "Warmup",
    "WarmupOrder",
    "WarmupPolicy",
]
