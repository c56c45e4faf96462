"""`spec.rollout`: how a changed revision replaces the running one."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from warmgraph_api.resource.base import Resource, rule, rules


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
    max_surge: Annotated[
        int, Meta(ge=0, le=1000, description="Surge: most pods above spec.replicas.")
    ] = 1
    max_unavailable: Annotated[
        int,
        Meta(ge=0, le=1000, description="Surge: most pods below spec.replicas that are not ready."),
    ] = 0
    progress_deadline_seconds: Annotated[
        int,
        Meta(
            ge=10,
            le=86_400,
            description="Say that a rollout fails when nothing moved for this long.",
        ),
    ] = 600
    on_failure: Annotated[
        OnRolloutFailure,
        Meta(
            description=(
                "After the deadline. Hold: the old pods keep serving until someone acts. "
                "Rollback: return to the last revision that was fully available."
            )
        ),
    ] = OnRolloutFailure.HOLD
    history_limit: Annotated[
        int, Meta(ge=0, le=100, description="Earlier revisions kept, to go back to.")
    ] = 3


ROLLOUT_RULES = rules(
    rule(
        "self.strategy != 'Surge' || self.maxSurge > 0 || self.maxUnavailable > 0",
        "rollout.maxSurge and rollout.maxUnavailable are both 0, so the rollout could never "
        "start: raise one, or use strategy Replace",
        at=".maxSurge",
    ),
    rule(
        "self.onFailure != 'Rollback' || self.historyLimit > 0",
        "rollout.onFailure Rollback needs an earlier revision to go back to: "
        "rollout.historyLimit must be 1 or more",
        at=".historyLimit",
    ),
)
