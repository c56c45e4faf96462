"""The metadata of a resource, as far as warmgraph's processes read it."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class ObjectMeta(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The metadata that the operator and the activator read."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str | UnsetType = UNSET
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
