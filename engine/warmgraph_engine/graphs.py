"""The declared buckets of an engine and the graphs they have so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from warmgraph_api.report import Bucket, BucketState, StepKind
from warmgraph_engine.answer import Answer
from warmgraph_engine.backends.base import Backend, CaptureError, Graph, GraphImage, ImageError
from warmgraph_engine.buckets import Candidate
from warmgraph_engine.canary import canary_step
from warmgraph_engine.shapes import BucketId, StepShape, bucket_shape


@dataclass(slots=True, kw_only=True)
class Entry:
    """One declared bucket."""

    shape: StepShape
    bucket: Bucket
    """As reported."""
    graph: Graph | None = None
    image: GraphImage | None = None
    proven: bool = False
    """The image came from the store, or a graph made from it a second time played like the first:
    other processes may rely on it."""


class GraphTable:
    """Captures, loads and gives out graphs. Used by the thread that runs steps."""

    def __init__(
        self,
        backend: Backend,
        declared: Iterable[Bucket],
        *,
        speculative_tokens: int = 0,
        on_change: Callable[[Bucket], None] = lambda _: None,
    ) -> None:
        self._backend, self._on_change = backend, on_change
        self._entries = {
            (bucket.kind, bucket.size): Entry(
                bucket=bucket,
                shape=bucket_shape(
                    bucket.kind,
                    bucket.size,
                    max_batch_size=backend.limits.max_batch_size,
                    speculative_tokens=speculative_tokens,
                ),
            )
            for bucket in declared
        }
        self.capture_failures = 0
        self.replaced = 0
        """Graphs that took the place of another of their bucket, which was found wrong."""

    def ids(self) -> list[BucketId]:
        return list(self._entries)

    def __getitem__(self, bucket: BucketId) -> Entry:
        return self._entries[bucket]

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def candidates(self, kind: StepKind) -> Sequence[Candidate]:
        """The buckets of a kind in ascending order, for the choice."""
        found = [e for (k, _), e in self._entries.items() if k is kind]
        return [
            Candidate(
                size=entry.bucket.size,
                shape=entry.shape,
                has_graph=entry.graph is not None,
                failed=entry.bucket.state is BucketState.FALLBACK,
            )
            for entry in sorted(found, key=lambda entry: entry.bucket.size)
        ]

    def remember(self, hits: Mapping[BucketId, int]) -> None:
        """Let the report say how often earlier processes wanted each bucket."""
        for bucket_id, entry in self._entries.items():
            entry.bucket = msgspec.structs.replace(entry.bucket, hits=hits.get(bucket_id, 0))
            self._on_change(entry.bucket)

    def load(self, image: GraphImage) -> None:
        """Take a stored image into use. Raises ImageError."""
        entry = self._entries[(image.kind, image.size)]
        self._load(entry, image, BucketState.RESTORED)
        entry.proven = True

    def capture(self, bucket: BucketId) -> bool:
        """Record a bucket's graph and take it into use; a failure puts the bucket in Fallback.

        Overwrites the static buffers and the KV cache's dummy block, nothing else.
        """
        entry = self._entries[bucket]
        entry.proven = False
        self._set(entry, state=BucketState.CAPTURING)
        try:
            self._backend.buffers.fill(canary_step(entry.shape), entry.shape)
            began = time.monotonic()
            image = self._backend.recorder.record(entry.bucket.size, entry.shape)
            self._load(entry, image, BucketState.CAPTURED, began=began)
        except (CaptureError, ImageError, MemoryError) as error:
            self.disable(bucket, f"capture failed: {error}")
            self.capture_failures += 1
            return False
        return True

    def set_answer(self, bucket: BucketId, answer: Answer) -> None:
        """Keep what a graph answers, for the processes that find its image in the store."""
        entry = self._entries[bucket]
        assert entry.image is not None
        entry.image = replace(entry.image, answer=answer)

    def disable(self, bucket: BucketId, reason: str) -> None:
        """Take a bucket's graph out of use for good; its steps take another path."""
        entry = self._entries[bucket]
        entry.graph = entry.image = None
        self._set(entry, state=BucketState.FALLBACK, reason=reason)

    def _load(
        self, entry: Entry, image: GraphImage, state: BucketState, *, began: float | None = None
    ) -> None:
        began = time.monotonic() if began is None else began
        replaces = entry.graph is not None
        entry.graph = self._backend.player.load(image)
        self.replaced += replaces
        entry.image = image
        seconds = time.monotonic() - began
        self._set(entry, state=state, seconds=seconds, bytes=entry.graph.bytes)

    def _set(
        self,
        entry: Entry,
        *,
        state: BucketState,
        seconds: float = 0.0,
        bytes: int = 0,  # noqa: A002 (the report's word)
        reason: str = "",
    ) -> None:
        entry.bucket = Bucket(
            kind=entry.bucket.kind,
            size=entry.bucket.size,
            mode=entry.bucket.mode,
            state=state,
            seconds=seconds,
            bytes=bytes,
            reason=reason,
            hits=entry.bucket.hits,
        )
        self._on_change(entry.bucket)
