"""`spec.buckets`: the shapes that graphs are captured for."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.resource.base import Resource, rule, rules

BucketSizes = Annotated[
    list[Annotated[int, Meta(ge=1, le=131_072)]],
    Meta(
        max_length=64,
        extra_json_schema=rules(
            rule("self.all(i, self.exists_one(j, i == j))", "bucket sizes must not repeat"),
            rule("self.isSorted()", "bucket sizes must be in ascending order"),
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
    rule(
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
                "Balanced: powers of two; of decode those up to 8 are eager, of prefill the "
                "largest, which long prompts are cut into. Full: powers of two, all eager. Each "
                "list ends at the engine's limit. With speculative decoding, verify gets the sizes "
                "of decode."
            )
        ),
    ] = BucketPreset.NONE
    decode: Annotated[
        StepBuckets,
        Meta(
            description="Steps of one token for each sequence; sizes count sequences.",
            extra_json_schema=STEP_BUCKETS_RULES,
        ),
    ] = msgspec.field(default_factory=StepBuckets)
    prefill: Annotated[
        StepBuckets,
        Meta(
            description="Chunks of prompts; sizes count tokens.",
            extra_json_schema=STEP_BUCKETS_RULES,
        ),
    ] = msgspec.field(default_factory=StepBuckets)
    verify: Annotated[
        StepBuckets,
        Meta(
            description="Steps that check drafts of speculative decoding; sizes count sequences.",
            extra_json_schema=STEP_BUCKETS_RULES,
        ),
    ] = msgspec.field(default_factory=StepBuckets)


BUCKETS_RULES = rules(
    rule(
        "self.preset == 'None' || (size(self.decode.eager) + size(self.decode.lazy)"
        " + size(self.prefill.eager) + size(self.prefill.lazy)"
        " + size(self.verify.eager) + size(self.verify.lazy) == 0)",
        "buckets.preset replaces the lists: set a preset or lists, not both",
        at=".preset",
    ),
)
