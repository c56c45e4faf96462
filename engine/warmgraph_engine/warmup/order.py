"""In which order buckets are captured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warmgraph_api.report import Bucket
from warmgraph_api.resource import WarmupOrder
from warmgraph_engine.shapes import BucketId


def order(
    buckets: Iterable[Bucket], policy: WarmupOrder, hits: Mapping[BucketId, int]
) -> list[Bucket]:
    """Buckets in capture order.

    LargestFirst lets later captures reuse the memory of the first. Learned goes by what traffic
    wanted in earlier processes; buckets it never wanted follow, largest first.
    """
    largest_first = sorted(buckets, key=lambda b: (-b.size, b.kind))
    if policy is WarmupOrder.SMALLEST_FIRST:
        return largest_first[::-1]
    if policy is WarmupOrder.LEARNED:
        return sorted(largest_first, key=lambda b: -hits.get((b.kind, b.size), 0))
    return largest_first
