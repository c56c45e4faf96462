"""The known-answer check: every graph on a step with fixed tokens.

A restored graph that gives the answer stored with it is right: the process that stored the answer
had compared it with eager execution. Any other graph is compared with eager execution here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from warmgraph_api.report import BucketState, StepKind
from warmgraph_engine.answer import Answer, digest_of, question
from warmgraph_engine.backends.base import Backend, Graph, first_line
from warmgraph_engine.canary import canary_step, known_answer_step
from warmgraph_engine.counts import CheckPath, CheckReason, StepCounts
from warmgraph_engine.graphs import Entry, GraphTable
from warmgraph_engine.shapes import BucketId, StepShape, shape_of
from warmgraph_engine.step import Step
from warmgraph_engine.warmup.contexts import EAGER, Contexts

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """On one bucket's graph."""

    path: CheckPath
    reason: CheckReason
    problem: str = ""
    """What is wrong with it; empty if it answers as it must."""


_REASONS = {
    CheckReason.CAPTURED: "captured now",
    CheckReason.NO_ANSWER: "stored without an answer",
    CheckReason.OTHER_QUESTION: "stored with an answer to another question",
    CheckReason.OTHER_ANSWER: "gave another answer than the stored one",
}


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many graphs were checked in which way, and why; empty if none was."""
    if not verdicts:
        return ""
    in_full = Counter(v.reason for v in verdicts if v.path is CheckPath.EAGER_EXECUTION)
    text = f"{len(verdicts) - in_full.total()} by stored answer, {in_full.total()} in full"
    reasons = [f"{count} {_REASONS[reason]}" for reason, count in in_full.items()]
    return f"{text} ({', '.join(reasons)})" if reasons else text


def check_order(buckets: Iterable[BucketId]) -> list[BucketId]:
    """Prefills first, since they write what the others continue; among them the smallest last,
    which may then have written it already. The others keep their order."""
    return sorted(buckets, key=lambda b: (0, -b[1]) if b[0] is StepKind.PREFILL else (1, 0))


class KnownAnswers:
    """Asks a backend's graphs for their known answers.

    But for problem_beside_traffic, only while no request has KV: it uses the KV cache's first
    blocks. Ask in the order of check_order.
    """

    def __init__(self, backend: Backend, graphs: GraphTable, counts: StepCounts) -> None:
        self._backend, self._graphs, self._counts = backend, graphs, counts
        self._contexts = Contexts(backend, graphs)

    def forget_stored(self) -> bool:
        """As Backend.forget_stored: if it says so, what was captured before must be so again."""
        return self._backend.forget_stored()

    def check(self, bucket: BucketId, reason: CheckReason | None = None) -> Verdict:
        """By the stored answer if there is one and the graph gives it, else in full. `reason` is
        what compare_with_stored said, if it was asked already.

        Raises ArithmeticError if eager execution itself gives no numbers.
        """
        reason = reason or self.compare_with_stored(bucket)
        if reason is not CheckReason.EQUAL:
            return self._check_in_full(bucket, reason)
        return self._verdict(bucket, CheckPath.STORED_ANSWER, reason)

    def check_in_full(self, bucket: BucketId) -> Verdict:
        """Compare a graph with eager execution, for an answer to store. Raises ArithmeticError."""
        self._contexts.clear()  # requests may have been here since
        captured = self._graphs[bucket].bucket.state is BucketState.CAPTURED
        reason = CheckReason.CAPTURED if captured else CheckReason.OTHER_QUESTION
        return self._check_in_full(bucket, reason)

    def _check_in_full(self, bucket: BucketId, reason: CheckReason) -> Verdict:
        """If graph and eager execution agree, what the graph answered is kept with its image."""
        entry = self._graphs[bucket]
        step = known_answer_step(entry.shape, self._backend.limits)
        writer = EAGER if step.kind is StepKind.PREFILL else self._contexts.writer()
        self._prepare(step, writer)
        problem, answered = self._compare(entry, step)
        if problem:
            self._contexts.clear()
        else:
            asked = self._question(entry, step, writer)
            answer = Answer(asked=asked, contexts=writer, digest=digest_of(asked, *answered))
            self._graphs.set_answer(bucket, answer)
            if reason is CheckReason.OTHER_ANSWER:
                _log.warning(
                    "stored graph of %s %d gave another answer than was stored with it; it agrees"
                    " with eager execution and serves",
                    *bucket,
                )
        return self._verdict(bucket, CheckPath.EAGER_EXECUTION, reason, problem)

    def problem_beside_traffic(self, entry: Entry) -> str:
        """What is wrong with a graph as far as a single token in the dummy block shows it, which is
        all that may be touched once requests have KV. Raises ArithmeticError too."""
        return self._compare(entry, canary_step(entry.shape))[0]

    def unanswered(self) -> list[BucketId]:
        """Buckets whose graphs the next process would have to compare with eager execution, or give
        contexts by it, though it need not; in the order in which to check them in full."""
        contexts_need_not_be_eager = self._contexts.writer() != EAGER
        found = [
            _id(entry)
            for entry in self._graphs.entries()
            if entry.graph is not None
            and entry.image is not None
            and (
                entry.image.answer is None
                or (
                    contexts_need_not_be_eager
                    and entry.image.answer.contexts == EAGER
                    and entry.bucket.kind is not StepKind.PREFILL
                )
            )
        ]
        return check_order(found)

    def compare_with_stored(self, bucket: BucketId) -> CheckReason:
        """EQUAL, or why it is not enough."""
        entry = self._graphs[bucket]
        if entry.bucket.state is not BucketState.RESTORED:
            return CheckReason.CAPTURED
        assert entry.image is not None
        answer = entry.image.answer
        if answer is None:
            return CheckReason.NO_ANSWER
        step = known_answer_step(entry.shape, self._backend.limits)
        if not self._contexts.can_write(answer.contexts) or answer.asked != self._question(
            entry, step, answer.contexts
        ):
            return CheckReason.OTHER_QUESTION
        self._prepare(step, answer.contexts)
        try:
            if digest_of(answer.asked, *self._replay(entry, step)) == answer.digest:
                if step.kind is StepKind.PREFILL:
                    self._contexts.note(entry.bucket.size, step)
                return CheckReason.EQUAL
        except (RuntimeError, ValueError, IndexError) as error:
            _log.warning("stored graph of %s %d: %s", *_id(entry), first_line(error))
        self._contexts.clear()  # who knows where it has written to
        return CheckReason.OTHER_ANSWER

    def _compare(self, entry: Entry, step: Step) -> tuple[str, Replay]:
        """What is wrong, and what the graph answered. The graph runs first: it must not find the
        keys and values that it has to write already there."""
        try:
            replay = self._replay(entry, step)
            answered = Replay(np.array(replay.logits, copy=True), replay.drawn)
        except (RuntimeError, ValueError, IndexError) as error:
            return f"its replay failed: {first_line(error)}", Replay(np.empty((0, 0)), [])
        shape = shape_of(step)
        self._backend.buffers.fill(step, shape)
        self._backend.run_eagerly(shape)
        expected = np.asarray(self._backend.logits(shape.logit_rows))
        if not np.isfinite(expected).all():
            raise ArithmeticError("the model's logits are not numbers: are its weights damaged?")
        problem = difference(expected, answered.logits, tolerance=self._backend.tolerance)
        return problem or drawing_problem(step, answered), answered

    def _prepare(self, step: Step, writer: int) -> None:
        if step.kind is StepKind.PREFILL:
            self._contexts.clear()
        else:
            self._contexts.provide(writer)

    def _question(self, entry: Entry, step: Step, writer: int) -> str:
        contexts = [] if step.kind is StepKind.PREFILL else self._contexts.steps(writer)
        return question(entry.shape, step, contexts, writer)

    def _replay(self, entry: Entry, step: Step) -> Replay:
        assert entry.graph is not None
        return replayed(self._backend, entry.graph, step, entry.shape)

    def _verdict(
        self, bucket: BucketId, path: CheckPath, reason: CheckReason, problem: str = ""
    ) -> Verdict:
        self._counts.checks[(*bucket, path, reason)] += 1
        return Verdict(path=path, reason=reason, problem=problem)


class Replay(NamedTuple):
    """What a graph answered to a step."""

    logits: np.ndarray[Any, Any]
    """float32 of shape (rows of the step, vocabulary); a view, valid until the next step."""
    drawn: list[int]
    """Tokens of the rows that draw one, where steps draw their tokens themselves."""


def replayed(backend: Backend, graph: Graph, step: Step, shape: StepShape) -> Replay:
    """What a graph of this shape answers. Raises RuntimeError, ValueError or IndexError where the
    replay fails."""
    rows = shape_of(step).logit_rows
    backend.buffers.fill(step, shape)
    # Where the graph writes nothing this stays, and is found.
    backend.poison_logits(rows)
    graph.replay()
    logits = np.asarray(backend.logits(rows))
    by_slot = backend.drawn()
    if by_slot is None:
        return Replay(logits, [])
    return Replay(logits, [int(by_slot[row.slot]) for row in step.rows if row.draw is not None])


def drawing_problem(step: Step, answered: Replay) -> str:
    """What is wrong with the tokens that were drawn, all at temperature 0; an empty text if
    nothing is."""
    ends = accumulate(row.logit_rows for row in step.rows)
    last = [end - 1 for row, end in zip(step.rows, ends, strict=True) if row.draw is not None]
    if not answered.drawn or np.array_equal(answered.logits[last].argmax(axis=1), answered.drawn):
        return ""
    return "it draws another token than the likeliest"


def _id(entry: Entry) -> BucketId:
    return (entry.bucket.kind, entry.bucket.size)


def difference(
    expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], *, tolerance: float
) -> str:
    """How logits differ beyond the tolerance, or in the token that greedy decoding would take;
    an empty text if they do not."""
    if not np.isfinite(actual).all():
        return "its logits are not numbers"
    bound = tolerance * float(np.abs(expected).max())
    largest = float(np.abs(expected - actual).max())
    if largest > bound:
        return f"its logits differ from eager execution's by {largest:.3g} (bound {bound:.3g})"
    rows = np.arange(len(expected))
    chosen = actual.argmax(axis=1)
    # Equal within the bound's width: a tie that rounding may break either way.
    if (expected.max(axis=1) - expected[rows, chosen] > 2 * bound).any():
        return "it prefers another token than eager execution"
    return ""
