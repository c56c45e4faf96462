"""The revision: a digest of everything in the spec that decides what a pod runs.

It is taken of what the user declared, not of the pod template that this version of the operator
makes of it: values equal to their default are left out, and so are the operator's own default
images. So a new operator, a new default image or a new field changes no revision, and no pod is
restarted by an upgrade. The template made for a revision is kept with it (history.py).
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo

from warmgraph_api.resource import Spec

DIGEST_LENGTH = 10
"""Hex digits: 40 bits tell a resource's few dozen revisions apart, and names stay short."""

_DECIDING = ("model", "engine", "buckets", "warmup", "graph_cache", "template")
_CLAIM_ONLY = ("storageClassName", "accessMode", "size")
"""Properties of the created claim; the pod mounts it just the same."""


def revision(spec: Spec, *, config_maps: Mapping[str, str]) -> str:
    """config_maps: digest of the content of each ConfigMap that the template refers to."""
    content: dict[str, Any] = {name: declared(getattr(spec, name)) for name in _DECIDING}
    for key in _CLAIM_ONLY:
        content["graph_cache"].get("volume", {}).pop(key, None)
    if not content["graph_cache"].get("volume"):
        content["graph_cache"].pop("volume", None)
    content["config_maps"] = dict(config_maps)
    return digest({name: value for name, value in content.items() if value})


def declared(value: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their default, as JSON values."""
    result: dict[str, Any] = {}
    for field in _fields(type(value)):
        current = getattr(value, field.name)
        if field.default_factory is not NODEFAULT:
            default = field.default_factory()
        else:
            default = field.default
        if current == default:
            continue
        if isinstance(current, msgspec.Struct):
            result[field.encode_name] = declared(current)
        else:
            result[field.encode_name] = msgspec.to_builtins(current)
    return result


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    """Reading the annotations anew each time would be a tenth of a pass."""
    return msgspec.structs.fields(kind)


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def config_map_digest(config_map: Mapping[str, Any] | None) -> str:
    """Of its content; empty for one that does not exist."""
    if config_map is None:
        return ""
    return digest([config_map.get("data") or {}, config_map.get("binaryData") or {}])
