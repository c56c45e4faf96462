"""`spec.graphCache`: captured graphs kept for the next pod."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.resource.base import MemoryQuantity, OptionalObjectName, Resource, rule, rules


class CacheMode(StrEnum):
    READ_WRITE = "ReadWrite"
    READ_ONLY = "ReadOnly"
    DISABLED = "Disabled"


class CacheVolume(Resource, frozen=True, kw_only=True):
    """Where stored graphs live."""

    claim_name: Annotated[
        OptionalObjectName,
        Meta(description="An existing claim to use; the operator creates one if empty."),
    ] = ""
    storage_class_name: Annotated[
        OptionalObjectName,
        Meta(description="Class of the created claim; the default one if empty."),
    ] = ""
    access_mode: Annotated[
        str,
        Meta(
            extra_json_schema={"enum": ["ReadWriteOnce", "ReadWriteMany"]},
            description="ReadWriteOnce keeps all replicas on one node.",
        ),
    ] = "ReadWriteMany"
    size: Annotated[MemoryQuantity, Meta(description="Size of the created claim.")] = "2Gi"


class CacheRetention(Resource, frozen=True, kw_only=True):
    """What is kept of graphs that no pod uses at the moment."""

    revisions: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description=(
                "Earlier revisions of this deployment whose graphs are kept, beside its newest. "
                "Those that rollout.historyLimit keeps are kept in any case, for a rollback."
            ),
        ),
    ] = 3
    max_size: Annotated[
        MemoryQuantity,
        Meta(
            description=(
                "Most that the cache as a whole may take. Beyond it, graphs that no pod uses go, "
                "the least recently used first."
            )
        ),
    ] = "1Gi"


class GraphCache(Resource, frozen=True, kw_only=True):
    """Captured graphs kept for the next pod."""

    mode: Annotated[
        CacheMode,
        Meta(
            description=(
                "ReadWrite: restore what fits, store what was captured. ReadOnly: only restore. "
                "Disabled: capture anew in every pod."
            )
        ),
    ] = CacheMode.READ_WRITE
    volume: CacheVolume = msgspec.field(default_factory=CacheVolume)
    retention: CacheRetention = msgspec.field(default_factory=CacheRetention)


GRAPH_CACHE_RULES = rules(
    rule(
        "self.mode != 'ReadOnly' || self.volume.claimName != ''",
        "graphCache.mode ReadOnly restores what others stored: name their claim in "
        "graphCache.volume.claimName",
        at=".volume.claimName",
    ),
    rule(
        "self.volume.claimName == '' || self.volume.storageClassName == ''",
        "graphCache.volume.storageClassName is for a claim that the operator creates; "
        "with claimName set, remove it",
        at=".volume.storageClassName",
    ),
)
