"""`spec` as a whole, and the rules that span its parts."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.resource.base import Resource, rule, rules
from warmgraph_api.resource.buckets import BUCKETS_RULES, Buckets
from warmgraph_api.resource.engine import ENGINE_RULES, Engine
from warmgraph_api.resource.graphcache import GRAPH_CACHE_RULES, GraphCache
from warmgraph_api.resource.model import Model
from warmgraph_api.resource.rollout import ROLLOUT_RULES, Rollout
from warmgraph_api.resource.scaling import SCALING_RULES, Scaling
from warmgraph_api.resource.template import TEMPLATE_RULES, Template
from warmgraph_api.resource.warmup import Warmup


class Spec(Resource, frozen=True, kw_only=True):
    """What is asked for."""

    model: Model
    engine: Annotated[Engine, Meta(extra_json_schema=ENGINE_RULES)] = msgspec.field(
        default_factory=Engine
    )
    buckets: Annotated[Buckets, Meta(extra_json_schema=BUCKETS_RULES)] = msgspec.field(
        default_factory=Buckets
    )
    warmup: Warmup = msgspec.field(default_factory=Warmup)
    graph_cache: Annotated[GraphCache, Meta(extra_json_schema=GRAPH_CACHE_RULES)] = msgspec.field(
        default_factory=GraphCache
    )
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
    template: Annotated[Template, Meta(extra_json_schema=TEMPLATE_RULES)] = msgspec.field(
        default_factory=Template
    )


SPEC_RULES = rules(
    rule(
        "(self.buckets.decode.eager + self.buckets.decode.lazy)"
        ".all(b, b <= self.engine.maxBatchSize)",
        "a decode bucket is above engine.maxBatchSize, and no step can be that large: "
        "raise engine.maxBatchSize or remove the bucket",
        at=".buckets.decode",
    ),
    rule(
        "(self.buckets.verify.eager + self.buckets.verify.lazy)"
        ".all(b, b <= self.engine.maxBatchSize)",
        "a verify bucket is above engine.maxBatchSize, and no step can be that large: "
        "raise engine.maxBatchSize or remove the bucket",
        at=".buckets.verify",
    ),
    rule(
        "(self.buckets.prefill.eager + self.buckets.prefill.lazy)"
        ".all(b, b <= self.engine.maxBatchTokens)",
        "a prefill bucket is above engine.maxBatchTokens, and no chunk can be that large: "
        "raise engine.maxBatchTokens or remove the bucket",
        at=".buckets.prefill",
    ),
    rule(
        "self.engine.speculative.method != 'None'"
        " || size(self.buckets.verify.eager) + size(self.buckets.verify.lazy) == 0",
        "verify buckets are for speculative decoding: set engine.speculative.method or remove them",
        at=".buckets.verify",
    ),
    rule(
        "self.engine.device != 'cuda' || !('nvidia.com/gpu' in self.template.resources.limits)"
        " || string(self.template.resources.limits['nvidia.com/gpu'])"
        " == string(self.engine.tensorParallelSize)",
        "template.resources.limits['nvidia.com/gpu'] must equal engine.tensorParallelSize: "
        "one process runs on each GPU",
        at=".template.resources.limits",
    ),
)
