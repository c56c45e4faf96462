"""Starts of an engine with a tiny model, up to the end of the warmup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.checkpoints import SETTINGS, backend
from warmgraph_api.report import (
    Bucket,
    BucketMode,
    BucketState,
    CacheResult,
    StepKind,
    WarmupReport,
)
from warmgraph_engine.backends.base import CaptureError, GraphImage
from warmgraph_engine.backends.cpu.backend import CpuBackend, device_facts
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.counts import CheckPath, CheckReason, StepCounts
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.report import Reporter
from warmgraph_engine.shapes import BucketId, StepShape
from warmgraph_engine.store.key import cache_key
from warmgraph_engine.store.store import Store
from warmgraph_engine.warmup.background import BetweenSteps
from warmgraph_engine.warmup.check import KnownAnswers
from warmgraph_engine.warmup.publishing import Publishing
from warmgraph_engine.warmup.runner import Warmup
from warmgraph_engine.warmup.tasks import between_steps

D, P, V = StepKind.DECODE, StepKind.PREFILL, StepKind.VERIFY


def buckets(*, eager: list[BucketId], lazy: list[BucketId]) -> tuple[Bucket, ...]:
    modes = [(b, BucketMode.EAGER) for b in eager] + [(b, BucketMode.LAZY) for b in lazy]
    return tuple(Bucket(kind=kind, size=size, mode=mode) for (kind, size), mode in modes)


BUCKETS = buckets(eager=[(D, 1), (D, 4), (P, 16)], lazy=[(D, 2), (D, 8)])

EVERY_KIND: dict[str, Any] = {
    "buckets": buckets(eager=[(D, 1), (D, 2), (D, 8), (P, 8), (P, 32), (V, 1), (V, 4)], lazy=[]),
    "speculative_tokens": 3,
}
"""Settings of an engine with buckets of every kind."""

BY_ANSWER = (CheckPath.STORED_ANSWER, CheckReason.EQUAL)


class Start:
    """One start of an engine, up to the end of its warmup."""

    def __init__(self, model: Path, cache: Path | None, **settings: Any) -> None:
        self.config = EngineConfig(
            model=model,
            served_model_name="tiny",
            cache_directory=cache,
            **{"buckets": BUCKETS, **settings},
        )
        self.stages: list[str] = []
        self.reporter = Reporter(
            model="tiny", revision="", buckets=self.config.buckets, started_at=0.0
        )
        self.backend: CpuBackend = backend(model)
        self.captured: list[BucketId] = []
        self.failing: set[int] = set()
        self._record = self.backend.recorder.record
        self.backend.recorder = self  # type: ignore[assignment]
        self.eager: list[StepShape] = []
        """Every eager run."""
        self.restored_before: list[list[BucketId]] = []
        """What had been captured when the stored graphs had been restored."""
        self.loaded_before: tuple[list[BucketId], list[StepShape]] | None = None
        """What had been captured and run eagerly when the weights were waited for."""
        self._run_eagerly = self.backend.run_eagerly
        self.backend.run_eagerly = self.run_eagerly  # type: ignore[method-assign]
        self.graphs = GraphTable(
            self.backend,
            self.config.buckets,
            speculative_tokens=self.config.speculative_tokens,
            on_change=self.reporter.set_bucket,
        )
        self.counts = StepCounts()
        key = cache_key(self.config, Checkpoint(model), SETTINGS, device_facts())
        self.store = Store(
            cache, key, mode=self.config.cache_mode, retention=self.config.cache_retention
        )
        self.publishing = Publishing(
            self.store, self.backend, self.graphs, self.counts, self.reporter
        )
        self.publishing.start = self.publishing.publish  # type: ignore[method-assign]
        self.answers = KnownAnswers(self.backend, self.graphs, self.counts)
        self.digest = key.digest()

    def record(self, size: int, shape: StepShape) -> GraphImage:
        self.captured.append((shape.kind, size))
        if size in self.failing:
            raise CaptureError("no room")
        return self._record(size, shape)

    def run_eagerly(self, shape: StepShape) -> None:
        self.eager.append(shape)
        self._run_eagerly(shape)

    def run(self) -> list[BucketId]:
        def look_up() -> Any:
            found = self.store.look_up()
            self.publishing.set_earlier(found)
            return found

        return Warmup(self.config, self.graphs, self.reporter, self.answers).run(
            look_up,
            self.finish_loading,
            key_digest=self.digest,
            restored=lambda: self.restored_before.append(list(self.captured)),
        )

    def finish_loading(self) -> None:
        self.loaded_before = (list(self.captured), list(self.eager))
        self.backend.finish_loading()

    def publish(self) -> None:
        """Prove what was captured, and store it."""
        for bucket in self.publishing.unproven():
            self.publishing.prove(bucket)
        self.publishing.publish()

    @property
    def report(self) -> WarmupReport:
        return self.reporter.snapshot()

    def work(
        self, left: list[BucketId], prepared: Callable[[], bool] = lambda: True
    ) -> BetweenSteps:
        """What is done between steps, after run() has left these buckets."""
        return between_steps(
            self.config,
            graphs=self.graphs,
            counts=self.counts,
            answers=self.answers,
            publishing=self.publishing,
            left=left,
            prepared=prepared,
        )

    def checks(self) -> dict[BucketId, tuple[CheckPath, CheckReason]]:
        """How each bucket was checked; the last check of several counts."""
        return {(kind, size): (path, reason) for kind, size, path, reason in self.counts.checks}

    def states(self) -> dict[BucketId, BucketState]:
        return {(b.kind, b.size): b.state for b in self.report.buckets}


def run_all(work: BetweenSteps, *, busy: bool = False) -> None:
    """Until nothing is left; a busy engine is given all the time it needs."""
    while work.run_once(busy=busy):
        work._not_before = 0.0


def stored_images(start: Start) -> dict[BucketId, GraphImage]:
    """What the next process would find."""
    return {(image.kind, image.size): image for image in start.store.look_up().images}


def in_full(reason: CheckReason) -> tuple[CheckPath, CheckReason]:
    return (CheckPath.EAGER_EXECUTION, reason)


def published(start: Start) -> Start:
    """The start, warm and with its graphs in the store."""
    run_all(start.work(start.run()))
    assert start.report.cache.published
    return start


def restored(start: Start) -> Start:
    """The start, warm with stored graphs alone."""
    assert start.run() == []
    assert start.report.cache.result is CacheResult.HIT
    return start


class Silent:
    """A graph that writes nothing."""

    bytes = 0

    def replay(self) -> None:
        return
