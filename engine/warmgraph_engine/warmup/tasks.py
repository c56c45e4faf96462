"""The tasks of an engine that serves: what the next process shall not have to do.

In this order: prove what was captured, so that it can be stored; capture the buckets that were left
for later; and, whenever no request has KV, check those in full, so that their answers are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from warmgraph_engine.backends.base import CaptureError, ImageError
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.shapes import BucketId
from warmgraph_engine.warmup.background import BetweenSteps, Task
from warmgraph_engine.warmup.check import KnownAnswers
from warmgraph_engine.warmup.publishing import Publishing

_log = logging.getLogger(__name__)


def capture_and_check(graphs: GraphTable, answers: KnownAnswers | None, bucket: BucketId) -> None:
    """Capture a bucket beside traffic; a graph that gives other logits than eager execution, or
    cannot be compared with it, is never used. Tokens that it draws itself are looked at in
    check_in_full, since they would be another sequence's here."""
    if not graphs.capture(bucket) or answers is None:
        return
    try:
        problem = answers.problem_beside_traffic(graphs[bucket])
    except (ArithmeticError, CaptureError, ImageError) as error:
        problem = str(error)
    if problem:
        graphs.disable(bucket, f"known-answer check: {problem}")


def check_in_full(graphs: GraphTable, answers: KnownAnswers, bucket: BucketId) -> bool:
    """Check a bucket while no request has KV; a graph that answers wrong is used no longer. False
    if it cannot be compared, for want of an eager execution: then it is left as it is."""
    if graphs[bucket].graph is None:
        return True
    try:
        problem = answers.check_in_full(bucket).problem
    except ArithmeticError as error:
        problem = str(error)
    except (CaptureError, ImageError) as error:
        _log.warning("graph of %s %d cannot be compared with eager execution: %s", *bucket, error)
        return False
    if problem:
        graphs.disable(bucket, f"known-answer check: {problem}")
    return True


def between_steps(
    config: EngineConfig,
    *,
    graphs: GraphTable,
    counts: StepCounts,
    answers: KnownAnswers,
    publishing: Publishing,
    left: list[BucketId],
    prepared: Callable[[], bool],
) -> BetweenSteps:
    """`left` are the buckets that the warmup left for later, in order. What runs a step without its
    graph waits until all is `prepared`."""
    checked = answers if config.known_answer_check else None
    incomparable: set[BucketId] = set()

    def most_wanted(waiting: list[BucketId]) -> BucketId:
        wanted = counts.wanted()
        # Of equals the first in the configured order.
        return max(waiting, key=lambda bucket: wanted.get(bucket, 0))

    def capture(bucket: BucketId) -> None:
        capture_and_check(graphs, checked, bucket)
        publishing.prove(bucket)

    def captured_all() -> None:
        publishing.start()
        full_checks.waiting += unanswered()

    def checked_all() -> None:
        # A prefill bucket that was just checked may write the contexts of others from now on.
        full_checks.waiting += unanswered()
        if not full_checks.waiting:
            publishing.start()

    def unanswered() -> list[BucketId]:
        if not checked or not publishing.wanted:
            return []
        return [bucket for bucket in answers.unanswered() if bucket not in incomparable]

    def check(bucket: BucketId) -> None:
        if not check_in_full(graphs, answers, bucket):
            incomparable.add(bucket)

    full_checks = Task(
        waiting=[] if left else unanswered(),
        work=check,
        finished=checked_all,
        only_idle=True,
        ready=prepared,
    )
    return BetweenSteps(
        [
            Task(waiting=publishing.unproven(), work=publishing.prove, finished=publishing.start),
            Task(
                waiting=left,
                work=capture,
                choose=most_wanted,
                finished=captured_all,
                ready=prepared,
            ),
            full_checks,
        ],
        busy_percent=config.lazy_capture_busy_percent,
    )
