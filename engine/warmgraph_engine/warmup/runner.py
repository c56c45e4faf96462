"""The warmup of a loaded model: restore what is stored, capture the rest, check it all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from warmgraph_api.report import (
    Bucket,
    BucketMode,
    BucketState,
    Cache,
    CacheResult,
    Check,
    CheckState,
    Stage,
)
from warmgraph_api.resource import Execution, OnCaptureFailure, WarmupOrder, WarmupPolicy
from warmgraph_engine.backends.base import GraphImage, ImageError
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.counts import CheckReason
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.report import Reporter
from warmgraph_engine.shapes import BucketId
from warmgraph_engine.store.store import Lookup
from warmgraph_engine.warmup.check import KnownAnswers, Verdict, check_order, summary
from warmgraph_engine.warmup.order import order

_log = logging.getLogger(__name__)


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

    def run(
        self,
        look_up: Callable[[], Lookup],
        finish_loading: Callable[[], None],
        *,
        key_digest: str,
        restored: Callable[[], None] = lambda: None,
    ) -> list[BucketId]:
        """Warm up; returns the buckets that are left for later, in order. Graphs are restored and
        captured while the weights still load; `restored` is called between the two.

        Raises ModelError, and WarmupFailedError where the configuration says that a failure must
        end the start.
        """
        if self._config.execution is Execution.EAGER:
            restored()
            self._wait_for_weights(finish_loading)
            self._reporter.set_cache(Cache(result=CacheResult.DISABLED, key=key_digest))
            self._skip_check("execution is Eager: there are no graphs to check")
            return []
        self._restore(look_up, key_digest)
        restored()
        self._capture_eager_buckets()
        self._wait_for_weights(finish_loading)
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
            self._hits = found.plan.hits()
            self._graphs.remember(self._hits)
            images = {(image.kind, image.size): image for image in found.images}
            declared = [(bucket.kind, bucket.size) for bucket in self._in_order()]
            problems = [self._load(images[bucket]) for bucket in declared if bucket in images]
        refused = [problem for problem in problems if problem]
        message = found.message
        if found.result is CacheResult.HIT:
            restored = len(problems) - len(refused)
            message = f"{restored} of {len(declared)} declared graphs restored"
        self._reporter.set_cache(
            Cache(result=found.result, key=key_digest, field=found.field, message=message)
        )
        for problem in refused:
            self._refuse(problem)
        cache = self._reporter.cache
        _log.info("graph cache: %s, %s", cache.result, cache.message)

    def _refuse(self, problem: str) -> None:
        """A stored graph is not used: for whoever watches, the whole entry counts as refused."""
        cache = self._reporter.cache
        said = f"; {cache.message}" if cache.message else ""
        self._reporter.set_cache(
            msgspec.structs.replace(cache, result=CacheResult.REFUSED, message=problem + said)
        )

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
                    f"{bucket.kind} {bucket.size} ({number} of {len(missing)}{self._why(bucket)})",
                )
                self._capture(bucket)

    def _why(self, bucket: Bucket) -> str:
        """Of its turn, where traffic decided it."""
        learned = self._config.warmup_order is WarmupOrder.LEARNED
        return f", wanted {bucket.hits} times before" if learned else ""

    def _capture(self, bucket: Bucket) -> None:
        bucket_id = (bucket.kind, bucket.size)
        if not self._graphs.capture(bucket_id):
            self._on_failure(self._graphs[bucket_id].bucket)

    def _on_failure(self, bucket: Bucket) -> None:
        message = f"bucket {bucket.kind} {bucket.size}: {bucket.reason}"
        if self._config.on_capture_failure is OnCaptureFailure.FAIL:
            raise WarmupFailedError(f"{message} (--on-capture-failure Fail)")
        _log.warning("%s; its steps run without a graph", message)

    def _wait_for_weights(self, finish_loading: Callable[[], None]) -> None:
        with self._reporter.span("Wait for weights"):
            finish_loading()

    def _check(self) -> None:
        if not self._config.known_answer_check:
            self._skip_check("switched off (--known-answer-check false)")
            return
        self._reporter.set_stage(Stage.CHECKING, "asking graphs for their known answers")
        verdicts: list[Verdict] = []
        disabled = []
        with self._reporter.span("Known-answer check"):
            buckets = check_order(self._graphs.ids())
            reasons = self._ask_restored(buckets)
            for bucket_id in buckets:
                if self._graphs[bucket_id].graph is not None:
                    verdicts.append(self._verdict(bucket_id, reasons.get(bucket_id)))
                    bucket = self._graphs[bucket_id].bucket
                    if bucket.state is BucketState.FALLBACK:
                        disabled.append(f"{bucket.kind} {bucket.size}")
                        if bucket.mode is BucketMode.EAGER:
                            self._on_failure(bucket)
                self._reporter.move()
        message = summary(verdicts)
        if disabled:
            message += f"; out of use: {', '.join(disabled)}"
        _log.info("known answers: %s", message or "no graphs to ask")
        self._reporter.set_check(Check(state=CheckState.PASSED, message=message))

    def _ask_restored(self, buckets: Sequence[BucketId]) -> dict[BucketId, CheckReason]:
        """Whether restored graphs give their stored answers. If one gives another, nothing that the
        entry has brought is a measure for it, or fit for other graphs."""
        reasons = {}
        for bucket_id in buckets:
            if self._graphs[bucket_id].bucket.state is BucketState.RESTORED:
                reasons[bucket_id] = self._answers.compare_with_stored(bucket_id)
                self._reporter.move()
        if CheckReason.OTHER_ANSWER in reasons.values() and self._answers.forget_stored():
            for bucket_id in buckets:
                bucket = self._graphs[bucket_id].bucket
                if bucket.state is BucketState.CAPTURED:
                    self._capture(bucket)
        return reasons

    def _verdict(self, bucket_id: BucketId, reason: CheckReason | None) -> Verdict:
        """A graph that answers wrong is recorded anew if it came from the store, else disabled."""
        entry = self._graphs[bucket_id]
        try:
            verdict = self._answers.check(bucket_id, reason)
            if verdict.problem and entry.bucket.state is BucketState.RESTORED:
                name = f"{bucket_id[0]} {bucket_id[1]}"
                said = f"stored graph of {name} is recorded anew: {verdict.problem}"
                _log.warning("%s", said)
                self._refuse(said)
                if self._graphs.capture(bucket_id):
                    verdict = self._answers.check(bucket_id)
        except ArithmeticError as error:
            self._reporter.set_check(Check(state=CheckState.FAILED, message=str(error)))
            raise WarmupFailedError(str(error)) from error
        if verdict.problem and entry.graph is not None:
            self._graphs.disable(bucket_id, f"known-answer check: {verdict.problem}")
        return verdict

    def _skip_check(self, message: str) -> None:
        self._reporter.set_check(Check(state=CheckState.SKIPPED, message=message))

    def _in_order(self) -> list[Bucket]:
        buckets = [entry.bucket for entry in self._graphs.entries()]
        return order(buckets, self._config.warmup_order, self._hits)
