"""What waits until after readiness: pieces of work between steps, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warmgraph_engine.shapes import BucketId


def _first(waiting: list[BucketId]) -> BucketId:
    return waiting[0]


@dataclass(slots=True, kw_only=True)
class Task:
    """The same piece of work for each of some buckets."""

    waiting: list[BucketId]
    work: Callable[[BucketId], object]
    choose: Callable[[list[BucketId]], BucketId] = _first
    """Which of those that wait is next."""
    finished: Callable[[], object] = lambda: None
    """Called when the last one is done."""
    only_idle: bool = False
    """It writes to KV blocks that requests may hold."""
    ready: Callable[[], bool] = lambda: True
    """Whether what it needs is there. Those after it may go first until then."""


class BetweenSteps:
    """Called between steps; earlier tasks go first. An idle engine works at once; a busy one spends
    at most `busy_percent` of its time on it: after a piece of t seconds it lets
    t * (100 / percent - 1) seconds pass. A piece cannot be cut short, so the share holds over time,
    not for each second."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        busy_percent: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks, self._clock = tasks, clock
        self._pause_factor = 100 / busy_percent - 1
        self._not_before = clock()

    def due(self, *, busy: bool) -> bool:
        """Whether there is a piece that the budget allows."""
        return self._next(busy=busy) is not None

    def run_once(self, *, busy: bool) -> bool:
        """Do the next piece, if one is due; says whether it did."""
        task = self._next(busy=busy)
        if task is not None:
            self._do(task)
        return task is not None

    def _next(self, *, busy: bool) -> Task | None:
        ready = (t for t in self._tasks if t.waiting and not (busy and t.only_idle) and t.ready())
        task = next(ready, None)
        return None if task is not None and busy and self._clock() < self._not_before else task

    def _do(self, task: Task) -> None:
        bucket = task.choose(task.waiting)
        task.waiting.remove(bucket)
        began = self._clock()
        task.work(bucket)
        ended = self._clock()
        self._not_before = ended + (ended - began) * self._pause_factor
        if not task.waiting:
            task.finished()
