"""Keeping proven graphs and what traffic used, beside serving."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import msgspec

from warmgraph_api.report import BucketState
from warmgraph_engine.backends.base import Backend, GraphImage
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.report import Reporter
from warmgraph_engine.shapes import BucketId
from warmgraph_engine.store.layout import Plan, PlannedBucket
from warmgraph_engine.store.store import GraphCache, Lookup
from warmgraph_engine.warmup.proof import stored_form_problem

_log = logging.getLogger(__name__)


class Publishing:
    """Proves images on the thread that runs steps; writes them to the store from threads of its
    own, one at a time."""

    def __init__(
        self,
        store: GraphCache,
        backend: Backend,
        graphs: GraphTable,
        counts: StepCounts,
        reporter: Reporter,
    ) -> None:
        self._store, self._backend, self._graphs = store, backend, graphs
        self._counts, self._reporter = counts, reporter
        self._lock = threading.Lock()
        self._stored: dict[BucketId, GraphImage] = {}
        self._problems: dict[BucketId, str] = {}
        self._told: dict[BucketId, int] = {}  # hits that the store knows of
        self._note = ""
        self.stored = self.failed = 0
        """Attempts, by how they ended."""

    @property
    def wanted(self) -> bool:
        return self._store.writable

    def set_earlier(self, found: Lookup) -> None:
        """What the entry held when it was looked up."""
        self._stored = {(image.kind, image.size): image for image in found.images}

    def unproven(self) -> list[BucketId]:
        """Buckets whose images have to be proven before they may be stored."""
        return [
            (entry.bucket.kind, entry.bucket.size)
            for entry in self._graphs.entries()
            if self.wanted and entry.image is not None and not entry.proven
        ]

    def prove(self, bucket: BucketId) -> None:
        """Let a bucket's image be stored if a graph made from it plays like the one in use."""
        entry = self._graphs[bucket]
        if not self.wanted or entry.image is None or entry.proven:
            return
        problem = stored_form_problem(self._backend, entry)
        if problem:
            _log.warning("%s %d is not stored: %s", *bucket, problem)
            self._problems[bucket] = problem
        entry.proven = not problem

    def start(self) -> None:
        """Publish what is proven, in the background; nothing if the store has it all."""
        if self._unstored() or self._problems:
            threading.Thread(target=self.publish, name="publish", daemon=True).start()

    def _unstored(self) -> list[GraphImage]:
        """Proven images that the store has not, or not with this answer."""
        found = [
            (entry.image, self._stored.get((entry.bucket.kind, entry.bucket.size)))
            for entry in self._graphs.entries()
            if entry.proven
        ]
        return [image for image, stored in found if image is not None and image != stored]

    def publish(self) -> None:
        """Publish now, with what traffic used; a failure is logged and reported, nothing more."""
        if not self._store.writable:
            return
        with self._lock:
            images, wanted = self._unstored(), self._counts.wanted()
            problems = [f"{b[0]} {b[1]}: {problem}" for b, problem in list(self._problems.items())]
            problem = self._store.publish(images, news(self._graphs, wanted, self._told))
            if problem:
                _log.warning("graphs are not stored: %s", problem)
                problems.append(problem)
                self.failed += 1
            else:
                self._told = wanted
                self._stored.update({(image.kind, image.size): image for image in images})
                self.stored += 1
                if images:
                    _log.info("stored %d graphs", len(images))
            self._report("; ".join(problems), published=bool(images) and not problem)

    def _report(self, problem: str, *, published: bool) -> None:
        """The last attempt counts: what was said of the one before is taken back."""
        cache = self._reporter.cache
        said = cache.message.removesuffix(self._note).removesuffix("; ")
        self._note = f"not stored: {problem}" if problem else ""
        message = "; ".join(filter(None, (said, self._note)))
        published = published or cache.published
        self._reporter.set_cache(
            msgspec.structs.replace(cache, message=message, published=published)
        )


def news(graphs: GraphTable, wanted: Mapping[BucketId, int], told: Mapping[BucketId, int]) -> Plan:
    """What the next process should know and the store does not: costs of captures, and the steps
    that wanted each bucket since it was told last."""
    buckets = []
    for entry in graphs.entries():
        bucket = entry.bucket
        bucket_id = (bucket.kind, bucket.size)
        captured = bucket.state is BucketState.CAPTURED
        buckets.append(
            PlannedBucket(
                kind=bucket.kind,
                size=bucket.size,
                milliseconds=round(bucket.seconds * 1e3, 1) if captured else 0.0,
                bytes=bucket.bytes,
                hits=wanted.get(bucket_id, 0) - told.get(bucket_id, 0),
            )
        )
    return Plan(buckets=buckets)
