"""`spec.scaling`: who decides the number of replicas, within which bounds."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.resource.base import Resource, rule, rules


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
    min_replicas: Annotated[
        int,
        Meta(
            ge=0, le=1000, description="Fewest replicas; 0 lets an idle deployment scale to zero."
        ),
    ] = 1
    max_replicas: Annotated[int, Meta(ge=1, le=1000, description="Most replicas.")] = 1
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
            description=(
                "Remove a replica only when fewer sufficed for this long. Replicas that somebody "
                "else writes, for example `kubectl scale`, are kept for as long."
            ),
        ),
    ] = 60
    activation: Activation = msgspec.field(default_factory=Activation)


SCALING_RULES = rules(
    rule(
        "self.minReplicas <= self.maxReplicas",
        "scaling.minReplicas must not be above scaling.maxReplicas",
        at=".minReplicas",
    ),
)
