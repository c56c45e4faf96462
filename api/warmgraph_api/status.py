"""`status` of an InferenceDeployment, written by the operator alone.

It holds nothing that changes while nothing happens (no request counts, no ages), so that a
steady state needs no writes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.resource import Resource


class Condition(Resource, frozen=True, kw_only=True):
    """metav1.Condition."""

    type: str
    status: Annotated[str, Meta(extra_json_schema={"enum": ["True", "False", "Unknown"]})]
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class GraphCount(Resource, frozen=True, kw_only=True):
    """Buckets of the current revision's pod that has most of them."""

    eager_captured: int = 0
    eager_total: int = 0
    lazy_captured: int = 0
    lazy_total: int = 0
    failed: int = 0
    summary: Annotated[
        str, Meta(description="For people: `eager 4/4, lazy 1/3`, with `failed 1` if any.")
    ] = ""


class CacheStatus(Resource, frozen=True, kw_only=True):
    """How the newest pod's lookup in the graph cache went."""

    result: str = ""
    key: str = ""
    field: str = ""
    message: str = ""


class ColdStartSpan(Resource, frozen=True, kw_only=True):
    name: str
    start_milliseconds: int
    milliseconds: int


class ColdStart(Resource, frozen=True, kw_only=True):
    """The newest completed start of a pod, by stage."""

    pod: str = ""
    revision: str = ""
    total_milliseconds: Annotated[
        int, Meta(description="From the engine's process start to the end of its warmup.")
    ] = 0
    pod_ready_milliseconds: Annotated[
        int, Meta(description="From the pod's creation to its Ready condition.")
    ] = 0
    stages: list[ColdStartSpan] = []


class ActivatorStatus(Resource, frozen=True, kw_only=True):
    port: Annotated[
        int, Meta(description="Port of the activators that stands for this deployment alone.")
    ] = 0


class Status(Resource, frozen=True, kw_only=True):
    """`status` of an InferenceDeployment."""

    observed_generation: int = 0
    replicas: Annotated[int, Meta(description="Pods that exist, of any revision.")] = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    selector: Annotated[str, Meta(description="Label selector of the pods, for HPA and KEDA.")] = ""
    url: Annotated[str, Meta(description="Address inside the cluster.")] = ""
    current_revision: Annotated[
        str, Meta(description="Revision that serves: the last one that became fully available.")
    ] = ""
    updated_revision: Annotated[str, Meta(description="Revision of the current spec.")] = ""
    graphs: GraphCount = msgspec.field(default_factory=GraphCount)
    cache: CacheStatus = msgspec.field(default_factory=CacheStatus)
    cold_start: ColdStart = msgspec.field(default_factory=ColdStart)
    activator: ActivatorStatus = msgspec.field(default_factory=ActivatorStatus)
    conditions: list[Condition] = []
