"""The size of a step as a graph sees it: the dimensions of its static buffers."""

from __future__ import annotations

from dataclasses import dataclass

from warmgraph_api.report import StepKind
from warmgraph_engine.step import Step

BucketId = tuple[StepKind, int]
"""Kind and size of a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """What a step function is run, or was captured, for."""

    kind: StepKind
    tokens: int
    sequences: int
    logit_rows: int

    def holds(self, other: StepShape) -> bool:
        """Whether a step of the other shape fits into this one, with padding."""
        return (
            other.tokens <= self.tokens
            and other.sequences <= self.sequences
            and other.logit_rows <= self.logit_rows
        )


def shape_of(step: Step) -> StepShape:
    """The exact shape of a step, without padding."""
    return StepShape(
        kind=step.kind,
        tokens=step.tokens,
        sequences=len(step.rows),
        logit_rows=sum(row.logit_rows for row in step.rows),
    )


def bucket_shape(
    kind: StepKind, size: int, *, max_batch_size: int, speculative_tokens: int
) -> StepShape:
    """The shape of a bucket: `size` counts sequences of decode and verify steps, and tokens of a
    prefill chunk, which may belong to as many sequences as a batch may have."""
    if kind is StepKind.DECODE:
        return StepShape(kind=kind, tokens=size, sequences=size, logit_rows=size)
    if kind is StepKind.VERIFY:
        tokens = size * (1 + speculative_tokens)
        return StepShape(kind=kind, tokens=tokens, sequences=size, logit_rows=tokens)
    sequences = min(size, max_batch_size)
    return StepShape(kind=kind, tokens=size, sequences=sequences, logit_rows=sequences)
