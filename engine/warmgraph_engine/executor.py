"""Runs steps: writes them into the static buffers, picks a path, replays or runs eagerly."""

from __future__ import annotations

from typing import Protocol

from warmgraph_api.resource import Execution
from warmgraph_engine.backends.base import Backend, first_line
from warmgraph_engine.buckets import choose
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import Limits, Path, Step, StepError, StepResult


class IdleWork(Protocol):
    """Background work between steps (warmup/background.py)."""

    def due(self, *, busy: bool) -> bool: ...
    def run_once(self, *, busy: bool) -> bool: ...


class GraphExecutor:
    """The Executor of step.py over a backend and its graphs."""

    def __init__(
        self,
        backend: Backend,
        graphs: GraphTable,
        counts: StepCounts,
        *,
        execution: Execution = Execution.GRAPHS,
        idle: IdleWork | None = None,
    ) -> None:
        self._backend, self._graphs, self._counts = backend, graphs, counts
        self._execution, self._idle = execution, idle

    @property
    def limits(self) -> Limits:
        return self._backend.limits

    @property
    def execution(self) -> Execution:
        return self._execution

    def set_execution(self, execution: Execution) -> None:
        """Switch graphs on or off, from any thread; the next step follows."""
        self._execution = execution

    def execute(self, step: Step) -> StepResult:
        shape = shape_of(step)
        choice = choose(
            shape,
            self._graphs.candidates(step.kind),
            graphs=self._execution is Execution.GRAPHS,
        )
        try:
            if choice.path is Path.EAGER:
                used = shape
                self._backend.buffers.fill(step, used)
                self._backend.run_eagerly(used)
            else:
                entry = self._graphs[(step.kind, choice.bucket)]
                used = entry.shape
                self._backend.buffers.fill(step, used)
                assert entry.graph is not None  # chosen because it has one
                entry.graph.replay()
            logits = self._backend.result(shape.logit_rows)
            timing = self._backend.timing()
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            raise StepError(
                f"{step.kind} step of {shape.tokens} tokens failed: {first_line(error)}"
            ) from error
        self._counts.note(shape, choice, used)
        return StepResult(
            logits=logits,
            path=choice.path,
            reason=choice.reason,
            bucket=choice.bucket,
            timing=timing,
        )

    def idle_work_due(self, *, busy: bool) -> bool:
        return self._idle is not None and self._idle.due(busy=busy)

    def idle_work(self, *, busy: bool) -> bool:
        return self._idle is not None and self._idle.run_once(busy=busy)
