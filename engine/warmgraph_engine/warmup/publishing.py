"""Keeping captured graphs and what traffic used, beside serving."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import msgspec

from warmgraph_api.report import BucketState, StepKind
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.report import Reporter
from warmgraph_engine.store.layout import Plan, PlannedBucket
from warmgraph_engine.store.store import Store

_log = logging.getLogger(__name__)


class Publishing:
    """Writes to the store from threads of its own, one at a time."""

    def __init__(
        self, store: Store, graphs: GraphTable, counts: StepCounts, reporter: Reporter
    ) -> None:
        self._store, self._graphs = store, graphs
        self._counts, self._reporter = counts, reporter
        self._lock = threading.Lock()
        self._earlier = Plan()

    def set_earlier(self, plan: Plan) -> None:
        """What the entry said when it was looked up."""
        self._earlier = plan

    def start(self) -> None:
        """Publish what has been captured, in the background; nothing if all was restored."""
        if self._captured():
            threading.Thread(target=self.publish, name="publish", daemon=True).start()

    def _captured(self) -> list[GraphImage]:
        return [
            entry.image
            for entry in self._graphs.entries()
            if entry.image is not None and entry.bucket.state is BucketState.CAPTURED
        ]

    def publish(self) -> None:
        """Publish now, with what traffic used; a failure is logged and reported, nothing more."""
        if not self._store.writable:
            return
        with self._lock:
            images = self._captured()
            problem = self._store.publish(images, self._plan())
            cache = self._reporter.cache
            if problem:
                _log.warning("graphs are not stored: %s", problem)
                note = f"not stored: {problem}"
                message = f"{cache.message}; {note}" if cache.message else note
                self._reporter.set_cache(msgspec.structs.replace(cache, message=message))
            elif images:
                self._reporter.set_cache(msgspec.structs.replace(cache, published=True))

    def _plan(self) -> Plan:
        earlier = {(b.kind, b.size): b for b in self._earlier.buckets}
        return plan(self._graphs, self._counts.wanted(), earlier)


def plan(
    graphs: GraphTable,
    wanted: Mapping[tuple[StepKind, int], int],
    earlier: Mapping[tuple[StepKind, int], PlannedBucket],
) -> Plan:
    """What the next process should know: costs of captures, and hits added to the earlier ones."""
    buckets = []
    for entry in graphs.entries():
        bucket = entry.bucket
        bucket_id = (bucket.kind, bucket.size)
        known = earlier.get(bucket_id, PlannedBucket(kind=bucket.kind, size=bucket.size))
        captured = bucket.state is BucketState.CAPTURED
        buckets.append(
            PlannedBucket(
                kind=bucket.kind,
                size=bucket.size,
                milliseconds=round(bucket.seconds * 1e3, 1) if captured else known.milliseconds,
                bytes=bucket.bytes or known.bytes,
                hits=known.hits + wanted.get(bucket_id, 0),
            )
        )
    return Plan(buckets=buckets)
