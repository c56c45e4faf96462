"""What happened to steps and graphs, counted per bucket; read by the metrics and the plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from warmgraph_api.report import StepKind
from warmgraph_engine.buckets import Choice
from warmgraph_engine.shapes import BucketId, StepShape
from warmgraph_engine.step import Path, PathReason


class CheckPath(StrEnum):
    """What a graph's answer was compared with."""

    STORED_ANSWER = "stored_answer"
    EAGER_EXECUTION = "eager_execution"


class CheckReason(StrEnum):
    """Why a check took its path."""

    EQUAL = "equal"
    """The graph, restored, gave the stored answer: nothing else was run."""
    CAPTURED = "captured"
    """This process recorded the graph."""
    NO_ANSWER = "no_answer"
    """None was stored with it."""
    OTHER_QUESTION = "other_question"
    """The stored answer is to a step that this process cannot or does not ask."""
    OTHER_ANSWER = "other_answer"
    """It gave another answer than the stored one."""


@dataclass(slots=True)
class StepCounts:
    """Written by the thread that runs steps, read by any other: each number is a single word, and
    a reader may see one step's numbers before the step's other ones."""

    steps: Counter[tuple[StepKind, int, Path, PathReason]] = field(default_factory=Counter)
    """Steps by kind, bucket wanted (0 if none), path and reason."""
    real_tokens: Counter[BucketId] = field(default_factory=Counter)
    """Tokens of sequences, by bucket used (0 for the eager path)."""
    padded_tokens: Counter[BucketId] = field(default_factory=Counter)
    """Tokens of padding, by bucket used."""
    replays: Counter[BucketId] = field(default_factory=Counter)
    checks: Counter[tuple[StepKind, int, CheckPath, CheckReason]] = field(default_factory=Counter)
    """Known-answer checks of each bucket's graph."""

    def note(self, shape: StepShape, choice: Choice, used: StepShape) -> None:
        """Count one step that was run in the shape `used`."""
        self.steps[(shape.kind, choice.wanted, choice.path, choice.reason)] += 1
        bucket = (shape.kind, choice.bucket)
        self.real_tokens[bucket] += shape.tokens
        self.padded_tokens[bucket] += used.tokens - shape.tokens
        if choice.path is not Path.EAGER:
            self.replays[bucket] += 1

    def wanted(self) -> dict[BucketId, int]:
        """How often traffic wanted each declared bucket."""
        result: Counter[BucketId] = Counter()
        for (kind, size, _, _), steps in list(self.steps.items()):
            if size:
                result[(kind, size)] += steps
        return dict(result)
