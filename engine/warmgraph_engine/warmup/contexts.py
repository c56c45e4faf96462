"""The keys and values that known-answer steps of decode and verify buckets continue.

They go through a prefill bucket's graph where there is one that may be trusted: a start that
restores its graphs then runs nothing eagerly, and on a GPU compiles nothing. Which graph wrote them
is part of what is asked, since another shape may sum in another order.
"""

from __future__ import annotations

from warmgraph_api.report import StepKind
from warmgraph_engine.backends.base import Backend
from warmgraph_engine.canary import (
    check_blocks,
    context_steps,
    known_answer_step,
    longest_context,
    writes_contexts,
)
from warmgraph_engine.graphs import Entry, GraphTable
from warmgraph_engine.shapes import StepShape, shape_of
from warmgraph_engine.step import Step

EAGER = 0
"""In place of a bucket's size: eager execution writes the contexts, or there are none."""


class Contexts:
    """Writes them when they are asked for and not there."""

    def __init__(self, backend: Backend, graphs: GraphTable) -> None:
        self._backend, self._graphs = backend, graphs
        self._written_by: int | None = None
        self._steps: dict[int, list[tuple[StepShape, Step]]] = {}

    def writer(self) -> int:
        """Size of the bucket that is to write them: the smallest that does it in one step, else the
        largest; EAGER without any."""
        trusted = sorted(
            entry.bucket.size for entry in self._graphs.entries() if self._may_write(entry)
        )
        if not trusted:
            return EAGER
        return next((size for size in trusted if len(self.steps(size)) == 1), trusted[-1])

    def can_write(self, writer: int) -> bool:
        bucket = (StepKind.PREFILL, writer)
        return writer == EAGER or (
            bucket in self._graphs.ids() and self._may_write(self._graphs[bucket])
        )

    def _may_write(self, entry: Entry) -> bool:
        return (
            entry.bucket.kind is StepKind.PREFILL
            and entry.graph is not None
            # Which it has once its own answer has been checked.
            and entry.image is not None
            and entry.image.answer is not None
            and entry.shape.tokens >= longest_context(self._backend.limits)
        )

    def steps(self, writer: int) -> list[tuple[StepShape, Step]]:
        """The steps, each with the shape that it runs in; a bucket's own known-answer step where
        that is enough."""
        if writer not in self._steps:
            self._steps[writer] = self._planned(writer)
        return self._steps[writer]

    def _planned(self, writer: int) -> list[tuple[StepShape, Step]]:
        limits = self._backend.limits
        if writer == EAGER:
            return [
                (shape_of(step), step)
                for step in context_steps(
                    limits, tokens=limits.max_batch_tokens, sequences=limits.max_batch_size
                )
            ]
        shape = self._graphs[(StepKind.PREFILL, writer)].shape
        known = known_answer_step(shape, limits)
        if writes_contexts(known, limits):
            return [(shape, known)]
        return [
            (shape, step)
            for step in context_steps(limits, tokens=shape.tokens, sequences=shape.sequences)
        ]

    def provide(self, writer: int) -> None:
        """Have them in the KV cache, from this writer and nobody else."""
        if self._written_by == writer:
            return
        self.clear()
        graph = None if writer == EAGER else self._graphs[(StepKind.PREFILL, writer)].graph
        for shape, step in self.steps(writer):
            self._backend.buffers.fill(step, shape)
            if graph is None:
                self._backend.run_eagerly(shape)
            else:
                graph.replay()
        self._written_by = writer

    def note(self, writer: int, step: Step) -> None:
        """A prefill bucket's graph ran this step on cleared blocks, and rightly."""
        if [step] == [own for _, own in self.steps(writer)]:
            self._written_by = writer

    def clear(self) -> None:
        """Poison the blocks of all known-answer steps."""
        self._backend.poison_kv(check_blocks(self._backend.limits))
        self._written_by = None
