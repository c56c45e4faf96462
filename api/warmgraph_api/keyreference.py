"""The reference of the cache key, docs/cache-key.md, from the type itself."""

from __future__ import annotations

import msgspec

from warmgraph_api.cachekey import CacheKey

INTRODUCTION = """\
<!-- Generated from api/warmgraph_api by `python -m warmgraph_api.crd`; edit the types instead. -->
# The graph cache key

A stored graph is used only by an engine whose key is equal in every field; the digest of the key is
the name of the entry. [graph-cache.md](graph-cache.md) says what happens when one differs.

The key holds nothing of the pod, the node, the GPU's serial number or UUID, ports, paths or the
time, so that any pod finds what any other left. Neither does it hold buckets, of which an entry has
many, nor what only decides when something is captured.
"""


def key_reference() -> str:
    """Markdown with a row for each field: what it holds, and why a graph depends on it."""
    rows = ["| field | what it holds | why it is in the key |", "| --- | --- | --- |"]
    described = msgspec.inspect.type_info(CacheKey)
    assert isinstance(described, msgspec.inspect.StructType)
    for field in described.fields:
        facts = field.type
        assert isinstance(facts, msgspec.inspect.Metadata), f"{field.name} is not described"
        what = (facts.extra_json_schema or {})["description"]
        rows.append(f"| `{field.name}` | {what} | {(facts.extra or {})['why']} |")
    return "\n".join([INTRODUCTION, *rows]) + "\n"
