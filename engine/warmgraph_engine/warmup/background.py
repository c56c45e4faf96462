"""What waits until after readiness: pieces of work between steps, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warmgraph_api.report import StepKind

BucketId = tuple[StepKind, int]


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

    def run_once(self, *, busy: bool) -> bool:
        """Do the next piece, if there is one and the budget allows; says whether it did."""
        if busy and self._clock() < self._not_before:
            return False
        for task in self._tasks:
            if task.waiting and not (busy and task.only_idle):
                self._do(task)
                return True
        return False

    def _do(self, task: Task) -> None:
        bucket = task.choose(task.waiting)
        task.waiting.remove(bucket)
        began = self._clock()
        task.work(bucket)
        ended = self._clock()
        self._not_before = ended + (ended - began) * self._pause_factor
        if not task.waiting:
            task.finished()
