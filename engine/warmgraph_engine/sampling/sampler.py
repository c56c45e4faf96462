"""The sampler's interface: what the engine loop asks for, whatever device the logits lie on.

A token is chosen in one of two places: by the step itself, on the device that computes it, or here
from the step's logits. `in_step` says which. Tokens that all were chosen by the step are known to
the device, so that the loop can hand it the next step before it reads them. Nothing a sampler does
may depend on which other rows share the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.step import StepDraw, StepError


class BadLogitsError(StepError):
    """A row of logits has no finite maximum: the model's computation went wrong."""


class TokenLogprob(msgspec.Struct, frozen=True, gc=False):
    """Log-probability of a token under the model's raw logits, before bias, penalties,
    temperature and truncation, with the likeliest alternatives in descending order."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class SampledToken(msgspec.Struct, frozen=True, gc=False):
    token_id: int
    logprob: TokenLogprob | None = None


class SampledSequence(Protocol):
    """What a sampler may know of a sequence."""

    @property
    def id(self) -> int: ...
    @property
    def params(self) -> SamplingParams: ...
    @property
    def random_key(self) -> tuple[int, int]:
        """Two 64-bit words that name the sequence's stream of random numbers."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and output so far."""
        ...

    @property
    def prompt_length(self) -> int: ...


class Draw(msgspec.Struct, frozen=True, gc=False):
    """One token to be chosen from one row of a step's logits."""

    row: int
    sequence: SampledSequence
    position: int
    """How many tokens of the output come before it. With run-ahead the last of them may not be
    in `sequence.tokens` yet."""
    slot: int = 0
    """StepRow.slot: where a device keeps the sequence's counts, its bias and the token drawn last.
    """
    first: bool = True
    """In this slot: what the device keeps there is another sequence's. All tokens are known."""
    drafts: Sequence[int] = ()
    """Of a verify step: tokens between those of the sequence and this one, to be counted as part
    of the output here and nowhere else. The draws of a sequence come in order of position; one
    whose last draft is not what the draw before it brought does not count, and may bring
    anything."""
    beside_drafts: bool = False
    """The step brings several draws of this sequence: one more than it has drafts."""


class PendingTokens(Protocol):
    """Tokens that may still be on their way from the device."""

    @property
    def on_device(self) -> bool:
        """The step has chosen all of them, so that PENDING_TOKEN stands for each in the next one.
        If not, they must be read before the next step is executed."""
        ...

    def read(self) -> Sequence[SampledToken]:
        """Wait for them; one for each draw, in order. Raises StepError, which may be a
        BadLogitsError."""
        ...


class Sampler(Protocol):
    def in_step(self, draw: Draw) -> StepDraw | None:
        """How the step is to choose this token, for StepRow.draw; None if `sample` will."""
        ...

    def sample(self, logits: Any, draws: Sequence[Draw]) -> PendingTokens:
        """The tokens of all draws of a step, whoever chooses them. `logits` is
        StepResult.logits, only read."""
        ...

    def prompt_logprobs(
        self, logits: Any, *, first_row: int, targets: Sequence[int], top: int
    ) -> list[TokenLogprob]:
        """Score known tokens: targets[i] under row first_row + i. Waits for the step."""
        ...

    def forget(self, sequence_id: int) -> None:
        """Drop what is kept of a sequence that ended. Unknown ids are fine."""
        ...
