"""`spec.warmup`: when a pod counts as warm."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.resource.base import Resource


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

    enabled: Annotated[
        bool,
        Meta(
            description=(
                "Capture lazy buckets at all; without it their steps take a larger bucket or none."
            )
        ),
    ] = True
    max_busy_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description=(
                "Share of time that capturing may take beside traffic. Each capture is a pause of"
                " some milliseconds: at 2, less than one token in a hundred waits for one."
            ),
        ),
    ] = 2


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
    order: Annotated[
        WarmupOrder,
        Meta(
            description=(
                "Which bucket is captured first. LargestFirst: memory runs out early or never. "
                "SmallestFirst: single requests are fast early. Learned: as traffic used them, "
                "as far as the cache remembers it."
            )
        ),
    ] = WarmupOrder.LARGEST_FIRST
    on_failure: Annotated[
        OnCaptureFailure,
        Meta(
            description=(
                "What a failed eager capture means. Fallback: its steps take a larger bucket, or "
                "run without a graph, and the pod becomes ready. Fail: the pod never becomes ready "
                "and says which bucket failed."
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
