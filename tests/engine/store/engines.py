"""Whole engines over a cache folder, in this process: from settings to steps that they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest

from tests.engine.checkpoints import decode, prefill
from warmgraph_api.report import (
    WARM_STATES,
    Bucket,
    BucketMode,
    BucketState,
    Stage,
    StepKind,
    WarmupReport,
)
from warmgraph_engine import startup
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.report import Reporter
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import Step, StepResult

D, P = StepKind.DECODE, StepKind.PREFILL
BUCKETS = tuple(
    Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
    for kind, size in ((D, 1), (D, 2), (D, 4), (P, 16))
)


def config_of(model: Path, cache: Path | None, **settings: Any) -> EngineConfig:
    return EngineConfig(
        model=model,
        served_model_name="tiny",
        cache_directory=cache,
        **{
            "buckets": BUCKETS,
            "kv_block_size": 4,
            "kv_cache_bytes": 64 << 10,
            "max_model_length": 64,
            "max_batch_size": 8,
            "max_batch_tokens": 32,
            **settings,
        },
    )


def logits_of(step: Step, result: StepResult) -> bytes:
    """The logits of a step's rows, wherever the device leaves them."""
    logits = result.logits
    if not isinstance(logits, np.ndarray):
        logits = logits.on_host(range(shape_of(step).logit_rows))
    return logits.tobytes()


class Engine:
    """One start."""

    def __init__(self, model: Path, cache: Path | None, **settings: Any) -> None:
        self.config = config_of(model, cache, **settings)
        self.reporter = Reporter(
            model="tiny", revision="", buckets=self.config.buckets, started_at=0.0
        )
        self.order: list[tuple[BucketState, StepKind, int]] = []
        """Buckets in the order in which they got a graph, and how."""
        set_bucket = self.reporter.set_bucket

        def note(bucket: Bucket) -> None:
            if bucket.state in WARM_STATES:
                self.order.append((bucket.state, bucket.kind, bucket.size))
            set_bucket(bucket)

        self.reporter.set_bucket = note  # type: ignore[method-assign]
        self.captures: list[str] = []
        """What the report said of each capture as it began."""
        set_stage = self.reporter.set_stage

        def note_stage(stage: Stage, message: str = "") -> None:
            if stage is Stage.CAPTURING:
                self.captures.append(message)
            set_stage(stage, message)

        self.reporter.set_stage = note_stage  # type: ignore[method-assign]
        self._started = startup.start(self.config, self.reporter)
        self.executor = self._started.executor
        self._registry = CollectorRegistry()
        for collector in self._started.metrics():
            self._registry.register(collector)

    def publish(self) -> None:
        """Do what is left for after readiness, and store it."""
        while self.executor.idle_work(busy=False):
            pass
        self._started.publishing.publish()

    def restore_again(self, number: int) -> None:
        """Load the image of one of the declared buckets a second time."""
        entries = self.executor._graphs.entries()
        image = entries[number % len(entries)].image
        assert image is not None
        self.executor._graphs.load(image)

    def close(self) -> None:
        self._started.close()

    @property
    def report(self) -> WarmupReport:
        return self.reporter.snapshot()

    def states(self) -> dict[tuple[StepKind, int], BucketState]:
        return {(b.kind, b.size): b.state for b in self.report.buckets}

    def metrics(self) -> str:
        return generate_latest(self._registry).decode()

    def answers(self) -> bytes:
        """The logits of steps of every declared bucket, exact and padded, with contexts longer than
        any that a check asks for."""
        steps = [
            prefill(list(range(1, 17)), [1, 2, 3, 4, 5, 6]),
            prefill(list(range(40, 53)), [7, 8, 9, 10, 11]),
            prefill([7, 9, 11, 2], [1, 2, 3, 4, 5, 6], start=16),
            decode((5, 20, [1, 2, 3, 4, 5, 6])),
            decode((6, 21, [1, 2, 3, 4, 5, 6]), (8, 13, [7, 8, 9, 10, 11])),
            decode((3, 0, [12]), (9, 14, [7, 8, 9, 10, 11]), (1, 22, [1, 2, 3, 4, 5, 6])),
            decode((2, 1, [12]), (2, 0, [13]), (2, 15, [7, 8, 9, 10, 11]), (4, 0, [14])),
        ]
        return b"".join(logits_of(step, self.executor.execute(step)) for step in steps)
