"""The border between what decides (scheduler, sampler, server) and what computes (backends).

A step is one pass of the model over some tokens of some sequences: decode is one token of each
sequence, a prefill chunk is several tokens of a few, verify is a few tokens of each. The deciding
side describes a step in plain Python; an Executor writes it into static buffers, picks a graph
bucket or eager execution, and answers with logits. Nothing here knows torch or CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from warmgraph_api.report import StepKind
from warmgraph_engine.kv import BlockTable

PENDING_TOKEN = -1
"""As a row's only token: the one drawn last for the row's slot, which only the device knows yet.
Sent only to backends whose sampler leaves it there (run-ahead, see loop.py)."""


class SlotCounts(msgspec.Struct, frozen=True, gc=False):
    """Which tokens a sequence has, for its penalties."""

    prompt: Sequence[int]
    output: Sequence[int]


class StepDraw(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How the step itself chooses the token that follows a row; see sampling/params.py."""

    scale: float = 0.0
    """1 / temperature; 0 takes the likeliest token."""
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    number: float = 0.0
    """The random number, 0 or more and below 1."""
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    alternatives: int | None = None
    """How many of the likeliest tokens to score beside the chosen one; None scores nothing."""
    biased: bool = False
    """The slot's bias is added to the logits, before the penalties."""
    bias: dict[int, float] | None = None
    """The slot's bias from this draw on: minus infinity rules a token out, and one that is not
    listed has none."""
    counts: SlotCounts | None = None
    """The slot's tokens before this draw. From then on the device counts what it draws with a
    penalty."""


class StepRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one sequence contributes to a step."""

    token_ids: Sequence[int]
    """The tokens to run, one or more."""
    slot: int = 0
    """0 to max_batch_size - 1, the sequence's own while it runs: where a device keeps what belongs
    to it from step to step, such as the token drawn last."""
    start_position: int
    """Position of the first of them; every earlier position is in the KV cache already."""
    block_table: BlockTable
    """KV blocks of the sequence, in order, covering at least start_position + len(token_ids)."""
    logit_rows: int
    """How many of the last tokens need logits: 0 for a chunk inside a prompt, 1 for decode and
    the end of a prompt, all of them for verify steps and for prompt log-probabilities."""
    draw: StepDraw | None = None
    """Set where the sampler leaves the choice of the next token to the step (Sampler.in_step): it
    is made from the row's last logits and kept as the slot's token drawn last."""


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    kind: StepKind
    rows: Sequence[StepRow]

    @property
    def tokens(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)


class Path(StrEnum):
    """How a step was run."""

    EXACT = "exact"
    PADDED = "padded"
    EAGER = "eager"


class PathReason(StrEnum):
    """Why a step took its path; one count each in the metrics."""

    BUCKET = "bucket"
    """Its own size is a captured bucket."""
    LARGER_BUCKET = "larger_bucket"
    """The next larger captured bucket holds it, with padding."""
    GRAPHS_OFF = "graphs_off"
    NO_BUCKET = "no_bucket"
    """Larger than every bucket of its kind, or there is none."""
    NOT_CAPTURED = "not_captured"
    """Its bucket is declared and waits for its (lazy) capture."""
    CAPTURE_FAILED = "capture_failed"
    ALL_LOGITS = "all_logits"
    """More logit rows than the graph's output holds: prompt log-probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Where a step stands in its device's time."""

    idle_seconds: float
    """From the last kernel of the step before it to its first one."""
    busy_seconds: float
    """From its first kernel to its last."""


class StepTiming(Protocol):
    """The times of a step that may not have run yet."""

    def times(self) -> StepTimes:
        """Waits for the step, and then for nothing else."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    logits: Any
    """float32 of shape (sum of logit_rows, vocabulary), in row order, and the tokens that the step
    draws: whatever the backend's Sampler takes. On the CPU a numpy array; on a GPU where both
    will be once the step has run. Logits are valid until the next execute()."""
    path: Path
    reason: PathReason
    bucket: int
    """Size of the bucket used; 0 on the eager path."""
    timing: StepTiming | None = None
    """None where the device does not measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Facts of a loaded model that the deciding side plans with."""

    vocabulary: int
    block_size: int
    """Positions in one KV block."""
    blocks: int
    """KV blocks that sequences may use; ids run from 1, since block 0 is the padding dummy."""
    max_model_length: int
    max_batch_size: int
    max_batch_tokens: int


class Executor(Protocol):
    """Runs steps, one at a time, from one thread."""

    @property
    def limits(self) -> Limits: ...

    def execute(self, step: Step) -> StepResult:
        """Run one step. On a GPU this only hands it over: steps run in the order in which they
        are handed over, and whoever wants something of one waits for it.

        Raises StepError if the backend failed; the engine must then report a fault, since
        the KV cache may hold anything.
        """
        ...

    def idle_work_due(self, *, busy: bool) -> bool:
        """Whether idle_work would do something now, which may take long."""
        ...

    def idle_work(self, *, busy: bool) -> bool:
        """Do one piece of background work (a lazy capture) if there is any and the budget allows.

        Called between steps; `busy` says that requests are waiting for the next one. If it is
        False, no sequence holds a KV block. Returns whether anything was done.
        """
        ...


class StepError(RuntimeError):
    """The backend could not run a step: not the fault of any request in it."""
