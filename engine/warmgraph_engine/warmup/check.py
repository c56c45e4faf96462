"""The known-answer check: every graph against eager execution, on steps with fixed tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from warmgraph_engine.backends.base import Backend, first_line
from warmgraph_engine.canary import canary_step, context_steps, known_answer_step
from warmgraph_engine.graphs import Entry
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import Step

TOLERANCES = {"float32": 1e-3, "bfloat16": 5e-2, "float16": 1e-2}
"""Largest difference of a logit, relative to the largest logit. A graph may run the same sums in
another order when it is padded; with 24 bits of mantissa that moves a logit by about 1e-5 of the
largest, with 8 bits by a few percent. A graph that reads wrong memory is off by about 1."""


class KnownAnswers:
    """Compares a backend's graphs with its eager execution."""

    def __init__(self, backend: Backend, dtype: str) -> None:
        self._backend, self._tolerance = backend, TOLERANCES[dtype]
        self._has_context = False

    def problem(self, entry: Entry) -> str:
        """What is wrong with a bucket's graph; an empty text if it answers as it must.

        Only before any request has KV of its own: it uses the KV cache's first blocks. Raises
        ArithmeticError if eager execution itself gives no numbers.
        """
        step = known_answer_step(entry.shape, self._backend.limits)
        if step.kind == "prefill":
            self._has_context = False
        elif not self._has_context:
            for context in context_steps(self._backend.limits):
                self._run(context)
            self._has_context = True
        return self._compare(entry, step)

    def problem_beside_traffic(self, entry: Entry) -> str:
        """The same with a single token in the dummy block, which is all that may be touched once
        requests have KV. Raises ArithmeticError too."""
        return self._compare(entry, canary_step(entry.shape))

    def _compare(self, entry: Entry, step: Step) -> str:
        assert entry.graph is not None
        expected = self._run(step)
        if not np.isfinite(expected).all():
            raise ArithmeticError("the model's logits are not numbers: are its weights damaged?")
        self._backend.buffers.fill(step, entry.shape)
        # Where the graph writes nothing this stays, and is found.
        self._backend.poison_logits(len(expected))
        try:
            entry.graph.replay()
            actual = np.asarray(self._backend.logits(len(expected)))
        except (RuntimeError, ValueError, IndexError) as error:
            return f"its replay failed: {first_line(error)}"
        return difference(expected, actual, tolerance=self._tolerance)

    def _run(self, step: Step) -> np.ndarray[Any, Any]:
        shape = shape_of(step)
        self._backend.buffers.fill(step, shape)
        self._backend.run_eagerly(shape)
        return np.array(self._backend.logits(shape.logit_rows), copy=True)


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
