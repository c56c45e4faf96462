"""Rank 0's backend: its own part of the model, and the other ranks' through it.

Whoever uses it sees one backend. Before rank 0 does something that all ranks do, it tells them; a
graph is in use if every rank has it, and a bucket that one rank cannot capture or load has none on
any. So all ranks take the same path in every step, since only rank 0 chooses one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from warmgraph_engine.backends.base import (
    Backend,
    CaptureError,
    Graph,
    GraphImage,
    ImageError,
    Inputs,
    Player,
    Recorder,
)
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.parallel.messages import (
    EAGER,
    Drawn,
    FinishLoading,
    ForgetStored,
    Load,
    PoisonKv,
    PoisonLogits,
    Prepare,
    Record,
)
from warmgraph_engine.parallel.ranks import Ranks
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Step, StepTiming

_Made = TypeVar("_Made", GraphImage, Graph)


class ParallelBackend:
    """Used as the backend that it wraps is."""

    def __init__(self, local: Backend, ranks: Ranks) -> None:
        self._local, self._ranks = local, ranks
        self.limits, self.layout, self.sampler = local.limits, local.layout, local.sampler
        self._steps = _Steps(local.buffers, ranks)
        self.buffers: Inputs = self._steps
        self.player: Player = _Player(local.player, self._steps, ranks)
        self.recorder: Recorder = _Recorder(local, self._steps, ranks)

    @property
    def tolerance(self) -> float:
        return self._local.tolerance

    @property
    def launches(self) -> int | None:
        return self._local.launches

    def finish_loading(self) -> None:
        """Raises ModelError if any rank's weights cannot be read."""
        seconds = self._ranks.timeout_seconds
        question = self._ranks.ask("finish loading its weights", FinishLoading(), seconds=seconds)
        self._local.finish_loading()
        if problem := question.problem():
            raise ModelError(problem)

    def run_eagerly(self, shape: StepShape) -> None:
        self._steps.run(lambda: self._local.run_eagerly(shape), bucket=0, graph=EAGER)

    def forget_stored(self) -> bool:
        self._ranks.tell(ForgetStored())
        return self._local.forget_stored()

    def poison_logits(self, rows: int) -> None:
        self._ranks.tell(PoisonLogits(rows=rows))
        self._local.poison_logits(rows)

    def poison_kv(self, blocks: int) -> None:
        self._ranks.tell(PoisonKv(blocks=blocks))
        self._local.poison_kv(blocks)

    def logits(self, rows: int) -> Any:
        return self._local.logits(rows)

    def drawn(self) -> Sequence[int] | None:
        """Raises RuntimeError if a rank drew other tokens: its next step would go on with them."""
        question = self._ranks.ask("say what it drew", Drawn())
        own = self._local.drawn()
        for rank, answer in enumerate(question.answers(), start=1):
            if answer.problem or answer.tokens != (None if own is None else list(own)):
                raise RuntimeError(f"rank {rank} drew other tokens {answer.problem}".rstrip())
        return own

    def result(self, rows: int) -> Any:
        return self._local.result(rows)

    def timing(self) -> StepTiming | None:
        return self._local.timing()


class _Steps:
    """Announces the step that was written into the buffers last, as it is run."""

    def __init__(self, buffers: Inputs, ranks: Ranks) -> None:
        self._buffers, self._ranks = buffers, ranks
        self.filled: tuple[Step, StepShape] | None = None
        self.dropped: deque[int] = deque()
        """Numbers of graphs that rank 0 needs no more; filled by any thread."""

    def fill(self, step: Step, shape: StepShape) -> None:
        self.filled = step, shape
        self._buffers.fill(step, shape)

    def run(self, locally: Callable[[], None], *, bucket: int, graph: int) -> None:
        assert self.filled is not None
        step, shape = self.filled
        forget = [self.dropped.popleft() for _ in range(len(self.dropped))]
        iteration = self._ranks.run(step, shape, bucket=bucket, graph=graph, forget=forget)
        try:
            locally()
        except RuntimeError as error:
            raise self._ranks.blame(error) from error
        self._ranks.progress.finish(0, iteration)


class _Graph:
    """A graph that every rank has under this number."""

    def __init__(self, local: Graph, steps: _Steps, number: int, bucket: int) -> None:
        self._local, self._steps = local, steps
        self._number, self._bucket = number, bucket
        self.bytes, self.driver_times = local.bytes, local.driver_times

    def replay(self) -> None:
        self._steps.run(self._local.replay, bucket=self._bucket, graph=self._number)

    def __del__(self) -> None:
        self._steps.dropped.append(self._number)


class _Player:
    def __init__(self, local: Player, steps: _Steps, ranks: Ranks) -> None:
        self._local, self._steps, self._ranks = local, steps, ranks
        self._numbers = count(EAGER + 1)

    def load(self, image: GraphImage) -> Graph:
        """Raises ImageError if any rank cannot load its own."""
        number, name = next(self._numbers), f"{image.kind} {image.size}"
        load = Load(kind=image.kind, size=image.size, graph=number)
        question = self._ranks.ask(f"load the graph of {name}", load)
        try:
            graph = _unanimous(lambda: self._local.load(image), question.problem, ImageError)
        except BaseException:
            self._steps.dropped.append(number)
            raise
        return _Graph(graph, self._steps, number, image.size)


class _Recorder:
    def __init__(self, local: Backend, steps: _Steps, ranks: Ranks) -> None:
        self._local, self._steps, self._ranks = local, steps, ranks

    def prepare(self) -> None:
        self._ranks.tell(Prepare())
        self._local.recorder.prepare()

    def record(self, size: int, shape: StepShape) -> GraphImage:
        """Raises CaptureError if any rank cannot."""
        assert self._steps.filled is not None
        record = Record(size=size, step=self._steps.filled[0], shape=shape)
        question = self._ranks.ask(f"capture {shape.kind} {size}", record)
        own = self._local.recorder
        return _unanimous(lambda: own.record(size, shape), question.problem, CaptureError)


def _unanimous(
    make: Callable[[], _Made], problem: Callable[[], str], error: type[Exception]
) -> _Made:
    """What rank 0 makes, if the others have made theirs. Raises `error` with their problem."""
    try:
        made = make()
    finally:
        theirs = problem()  # also when it has failed here: they answer, and are waited for
    if theirs:
        raise error(theirs)
    return made
