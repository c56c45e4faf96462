"""The warmup of a loaded model: restore what is stored, capture the rest, check it all."""

from __future__ import annotations

import logging
from collections.abc import Callable

from warmgraph_api.report import (
    Bucket,
    BucketMode,
    BucketState,
    Cache,
    CacheResult,
    Check,
    CheckState,
    Stage,
    StepKind,
)
from warmgraph_api.resource import Execution, OnCaptureFailure, WarmupPolicy
from warmgraph_engine.backends.base import GraphImage, ImageError
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.report import Reporter
from warmgraph_engine.store.store import Lookup
from warmgraph_engine.warmup.check import KnownAnswers
from warmgraph_engine.warmup.order import order

_log = logging.getLogger(__name__)

BucketId = tuple[StepKind, int]


class WarmupFailedError(RuntimeError):
    """The engine must not serve; the message says why."""


class Warmup:
    """One run, in the thread that loaded the model, before the engine loop starts."""

    def __init__(
        self,
        config: EngineConfig,
        graphs: GraphTable,
        reporter: Reporter,
        answers: KnownAnswers,
    ) -> None:
        self._config, self._graphs = config, graphs
        self._reporter, self._answers = reporter, answers
        self._hits: dict[BucketId, int] = {}

    def run(self, look_up: Callable[[], Lookup], *, key_digest: str) -> list[BucketId]:
        """Warm up; returns the buckets that are left for later, in order.

        Raises WarmupFailedError where the configuration says that a failure must end the start.
        """
        if self._config.execution is Execution.EAGER:
            self._reporter.set_cache(Cache(result=CacheResult.DISABLED, key=key_digest))
            self._skip_check("execution is Eager: there are no graphs to check")
            return []
        self._restore(look_up, key_digest)
        self._capture_eager_buckets()
        self._check()
        return [
            (bucket.kind, bucket.size)
            for bucket in self._in_order()
            if bucket.state is BucketState.PENDING
            and (bucket.mode is BucketMode.EAGER or self._config.lazy_capture)
        ]

    def _restore(self, look_up: Callable[[], Lookup], key_digest: str) -> None:
        self._reporter.set_stage(Stage.RESTORING, "looking for stored graphs")
        with self._reporter.span("Restore graphs"):
            found = look_up()
            self._hits = {(b.kind, b.size): b.hits for b in found.plan.buckets}
            declared = set(self._graphs.ids())
            problems = [
                self._load(image) for image in found.images if (image.kind, image.size) in declared
            ]
        refused = [problem for problem in problems if problem]
        self._reporter.set_cache(
            Cache(
                result=CacheResult.REFUSED if refused else found.result,
                key=key_digest,
                field=found.field,
                message="; ".join(refused) or found.message,
            )
        )
        _log.info("graph cache: %s %s", found.result, "; ".join(refused) or found.message)

    def _load(self, image: GraphImage) -> str:
        try:
            self._graphs.load(image)
        except ImageError as error:
            return f"stored graph of {image.kind} {image.size} {error}"
        return ""

    def _capture_eager_buckets(self) -> None:
        if self._config.warmup_policy is WarmupPolicy.MODEL_LOADED:
            return
        missing = [
            bucket
            for bucket in self._in_order()
            if bucket.mode is BucketMode.EAGER and bucket.state is BucketState.PENDING
        ]
        if not missing:
            return
        with self._reporter.span("Capture graphs"):
            for number, bucket in enumerate(missing, start=1):
                self._reporter.set_stage(
                    Stage.CAPTURING,
                    f"{bucket.kind} {bucket.size} ({number} of {len(missing)})",
                )
                self._capture(bucket)

    def _capture(self, bucket: Bucket) -> None:
        bucket_id = (bucket.kind, bucket.size)
        if not self._graphs.capture(bucket_id):
            self._on_failure(self._graphs[bucket_id].bucket)

    def _on_failure(self, bucket: Bucket) -> None:
        message = f"bucket {bucket.kind} {bucket.size}: {bucket.reason}"
        if self._config.on_capture_failure is OnCaptureFailure.FAIL:
            raise WarmupFailedError(f"{message} (--on-capture-failure Fail)")
        _log.warning("%s; its steps run without a graph", message)

    def _check(self) -> None:
        if not self._config.known_answer_check:
            self._skip_check("switched off (--known-answer-check false)")
            return
        self._reporter.set_stage(Stage.CHECKING, "comparing graphs with eager execution")
        disabled = []
        with self._reporter.span("Known-answer check"):
            # Prefills first: they overwrite what decode steps continue.
            for bucket_id in sorted(self._graphs.ids(), key=lambda b: b[0] is not StepKind.PREFILL):
                if self._graphs[bucket_id].graph is not None and not self._passes(bucket_id):
                    bucket = self._graphs[bucket_id].bucket
                    disabled.append(f"{bucket.kind} {bucket.size}")
                    if bucket.mode is BucketMode.EAGER:
                        self._on_failure(bucket)
                self._reporter.move()
        message = f"out of use: {', '.join(disabled)}" if disabled else ""
        self._reporter.set_check(Check(state=CheckState.PASSED, message=message))

    def _passes(self, bucket_id: BucketId) -> bool:
        """A graph that answers wrong is recorded anew if it came from the store, else disabled."""
        entry = self._graphs[bucket_id]
        try:
            problem = self._answers.problem(entry)
            if problem and entry.bucket.state is BucketState.RESTORED:
                _log.warning("stored graph of %s %d: %s; recording it anew", *bucket_id, problem)
                self._graphs.capture(bucket_id)
                problem = self._answers.problem(entry) if entry.graph is not None else ""
        except ArithmeticError as error:
            self._reporter.set_check(Check(state=CheckState.FAILED, message=str(error)))
            raise WarmupFailedError(str(error)) from error
        if problem:
            self._graphs.disable(bucket_id, f"known-answer check: {problem}")
        return entry.graph is not None

    def _skip_check(self, message: str) -> None:
        self._reporter.set_check(Check(state=CheckState.SKIPPED, message=message))

    def _in_order(self) -> list[Bucket]:
        buckets = [entry.bucket for entry in self._graphs.entries()]
        return order(buckets, self._config.warmup_order, self._hits)
