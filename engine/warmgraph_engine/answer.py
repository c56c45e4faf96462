"""A graph's answer to its known-answer step, as it is kept beside the graph.

It depends on the model's weights, on the step's tokens and padding, and on the keys and values that
the step continues. The weights are not named here: other weights give another answer, which is
what a start wants to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Step


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asked: str
    """Digest of the question: question()."""
    contexts: int
    """Size of the prefill bucket that wrote the keys and values which the step continued; 0 if
    that was eager execution, or if it continued none."""
    digest: str
    """Of the question and all its logits: digest_of()."""


def question(
    shape: StepShape, step: Step, contexts: Sequence[tuple[StepShape, Step]], writer: int
) -> str:
    """SHA-256 of everything that is asked: the step, the bucket's shape that it is padded to, and
    the steps that wrote its contexts, in the shapes in which bucket `writer` ran them."""
    return hashlib.sha256(msgspec.json.encode((shape, step, writer, contexts))).hexdigest()


def digest_of(asked: str, logits: np.ndarray[Any, Any]) -> str:
    """SHA-256 of a question and the bytes of its logits: one alone fits no other."""
    digest = hashlib.sha256(asked.encode())
    digest.update(np.ascontiguousarray(logits).data)
    return digest.hexdigest()
