"""`status` of an InferenceDeployment, written by the operator alone.

It holds nothing that changes while nothing happens (no request counts, no ages), so that a
steady state needs no writes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.resource.base import Resource, keyed_by


class Condition(Resource, frozen=True, kw_only=True):
    """One observation of the operator (metav1.Condition)."""

    type: Annotated[str, Meta(max_length=316, description="What the condition is about.")]
    status: Annotated[
        str,
        Meta(
            extra_json_schema={"enum": ["True", "False", "Unknown"]},
            description="Whether it is so.",
        ),
    ]
    reason: Annotated[str, Meta(max_length=1024, description="Why, as one CamelCase word.")]
    message: Annotated[
        str, Meta(max_length=32_768, description="Why, for the person who must act.")
    ] = ""
    observed_generation: Annotated[
        int, Meta(description="metadata.generation that this was said about.")
    ] = 0
    last_transition_time: Annotated[
        str,
        Meta(extra_json_schema={"format": "date-time"}, description="When `status` last changed."),
    ]


class GraphCount(Resource, frozen=True, kw_only=True):
    """Buckets of the current revision's pod that has most of them."""

    eager_captured: Annotated[int, Meta(description="Eager buckets captured or restored.")] = 0
    eager_total: Annotated[int, Meta(description="Eager buckets declared.")] = 0
    lazy_captured: Annotated[int, Meta(description="Lazy buckets captured or restored.")] = 0
    lazy_total: Annotated[int, Meta(description="Lazy buckets declared.")] = 0
    failed: Annotated[
        int,
        Meta(
            description="Buckets out of use: their steps take a larger one, or run without a graph."
        ),
    ] = 0
    summary: Annotated[
        str, Meta(description="For people: `eager 4/4, lazy 1/3`, with `failed 1` if any.")
    ] = ""


class CacheStatus(Resource, frozen=True, kw_only=True):
    """How the newest pod's lookup in the graph cache went."""

    result: Annotated[str, Meta(description="Hit, Miss, Refused, Disabled or Pending.")] = ""
    key: Annotated[str, Meta(description="Digest of the engine's cache key.")] = ""
    field: Annotated[str, Meta(description="Key field that differs from the entry found.")] = ""
    message: Annotated[str, Meta(description="The same for people, with both values.")] = ""


class ColdStartSpan(Resource, frozen=True, kw_only=True):
    """One stage of a start. Stages may overlap."""

    name: Annotated[str, Meta(description="Stage, such as Load model.")]
    start_milliseconds: Annotated[int, Meta(description="After the engine's process started.")]
    milliseconds: Annotated[int, Meta(description="How long it took.")]


class ColdStart(Resource, frozen=True, kw_only=True):
    """The newest completed start of a pod, by stage."""

    pod: Annotated[str, Meta(description="Name of the pod.")] = ""
    revision: Annotated[str, Meta(description="Revision of the pod.")] = ""
    completion_time: Annotated[
        str, Meta(description="When the pod became ready, RFC 3339 with milliseconds.")
    ] = ""
    total_milliseconds: Annotated[
        int, Meta(description="From the engine's process start to the end of its warmup.")
    ] = 0
    pod_ready_milliseconds: Annotated[
        int, Meta(description="From the pod's creation to its Ready condition.")
    ] = 0
    stages: Annotated[list[ColdStartSpan], Meta(description="In order of their start.")] = []


class ActivatorStatus(Resource, frozen=True, kw_only=True):
    """Where the activators stand in for this deployment."""

    port: Annotated[
        int, Meta(description="Port of the activators that stands for this deployment alone.")
    ] = 0


class Status(Resource, frozen=True, kw_only=True):
    """What is observed. Written by the operator alone."""

    observed_generation: Annotated[
        int, Meta(description="metadata.generation that this status was written for.")
    ] = 0
    replicas: Annotated[int, Meta(description="Pods that exist, of any revision.")] = 0
    ready_replicas: Annotated[int, Meta(description="Pods that get traffic.")] = 0
    updated_replicas: Annotated[int, Meta(description="Pods of the updated revision.")] = 0
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
    conditions: Annotated[
        list[Condition],
        Meta(
            description="Ready, Serving, Warm, UpToDate and Progressing.",
            extra_json_schema=keyed_by("type"),
        ),
    ] = []
