"""Captures that wait until after readiness, one at a time, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable

from warmgraph_api.report import StepKind
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.warmup.check import KnownAnswers

BucketId = tuple[StepKind, int]


def capture_and_check(graphs: GraphTable, answers: KnownAnswers | None, bucket: BucketId) -> None:
    """Capture a bucket beside traffic; a graph that answers wrong is never used."""
    if not graphs.capture(bucket) or answers is None:
        return
    try:
        problem = answers.problem_beside_traffic(graphs[bucket])
    except ArithmeticError as error:
        problem = str(error)
    if problem:
        graphs.disable(bucket, f"known-answer check: {problem}")


class LazyCaptures:
    """Called between steps. An idle engine captures at once; a busy one spends at most
    `busy_percent` of its time on it: after a capture of t seconds it lets t * (100 / percent - 1)
    seconds pass. A single capture cannot be cut short, so the share holds over time, not for
    each second."""

    def __init__(
        self,
        waiting: list[BucketId],
        *,
        capture: Callable[[BucketId], object],
        wanted: Callable[[], dict[BucketId, int]],
        finished: Callable[[], None] = lambda: None,
        busy_percent: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waiting, self._capture, self._wanted = waiting, capture, wanted
        self._finished, self._clock = finished, clock
        self._pause_factor = 100 / busy_percent - 1
        self._not_before = clock()

    def run_once(self, *, busy: bool) -> bool:
        """Capture the bucket that traffic wanted most, if there is one and the budget allows."""
        if not self._waiting or (busy and self._clock() < self._not_before):
            return False
        wanted = self._wanted()
        # Of equals the first in the configured order.
        bucket = max(self._waiting, key=lambda bucket: wanted.get(bucket, 0))
        self._waiting.remove(bucket)
        began = self._clock()
        self._capture(bucket)
        ended = self._clock()
        self._not_before = ended + (ended - began) * self._pause_factor
        if not self._waiting:
            self._finished()
        return True
