"""The sampler of a device whose steps draw tokens themselves.

It tells the step how, and reads what was drawn. What a device keeps for a slot is sent with the
sequence's first draw there: which tokens its penalties count, and what is added to its logits. Only
drafts are judged here, by the CPU's sampler, from copies of those rows alone. A request's tokens
are the same either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from warmgraph_engine.sampling.arrays import Logits
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.logprobs import scored
from warmgraph_engine.sampling.params import MIN_TEMPERATURE, SamplingParams
from warmgraph_engine.sampling.penalties import bias_of, rules_out_stops
from warmgraph_engine.sampling.randomness import uniforms
from warmgraph_engine.sampling.sampler import BadLogitsError, Draw, SampledToken, TokenLogprob
from warmgraph_engine.step import SlotCounts, StepDraw

NUMBERS_AHEAD = 64
"""Random numbers made at a time for a sequence: to set up their generator takes as long as some
thousand numbers."""

LIKELIEST = StepDraw()


class SlotScores(msgspec.Struct, frozen=True, gc=False):
    """Of one row of raw logits."""

    logit: float
    """The chosen token's."""
    largest: float
    mass: float
    """Sum of exp(logit - largest) over all tokens."""
    best: Sequence[tuple[int, float]]
    """The likeliest tokens and their logits, in descending order."""


class StepLogits(Protocol):
    """A step's logits on the device, and the tokens drawn from them."""

    def drawn(self) -> Sequence[int]:
        """Wait for the step; the token of each slot that drew one, below 0 if its logits hold NaN
        or infinity. Raises StepError."""
        ...

    def scores(self, slot: int, alternatives: int) -> SlotScores:
        """Wait for the step; what it scored for a slot, whose StepDraw asked for so many. Raises
        StepError."""
        ...

    def on_host(self, rows: Sequence[int]) -> Logits:
        """Wait for the step; copies of these rows, in this order, valid until the next call.
        Raises StepError."""
        ...


class DeviceSampler:
    """See `Sampler`. Logits are `StepLogits`."""

    def __init__(self, *, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._host = CpuSampler(vocabulary=vocabulary)
        self._numbers: dict[int, tuple[int, list[float]]] = {}
        """By sequence: a stretch of its random numbers, and the position of the first."""
        self._drawn_here: set[int] = set()
        """Sequences that got tokens which the device has not counted."""

    def in_step(self, draw: Draw) -> StepDraw | None:
        if draw.beside_drafts:
            return None
        sequence, params = draw.sequence, draw.sequence.params
        how = LIKELIEST if params.greedy else self._sampled(draw)
        if not _is_changed(params, draw.position):
            return how
        new = draw.first or sequence.id in self._drawn_here
        self._drawn_here.discard(sequence.id)
        return _changed(how, draw, new=new, vocabulary=self._vocabulary)

    def _sampled(self, draw: Draw) -> StepDraw:
        params = draw.sequence.params
        return StepDraw(
            scale=1.0 / max(params.temperature, MIN_TEMPERATURE),
            # A request may name any number; one above the vocabulary is no limit.
            top_k=params.top_k if params.top_k < self._vocabulary else 0,
            top_p=params.top_p,
            min_p=params.min_p,
            number=self._number(draw),
        )

    def sample(self, logits: StepLogits, draws: Sequence[Draw]) -> _Tokens:
        on_host = [draw for draw in draws if draw.beside_drafts]
        self._drawn_here.update(draw.sequence.id for draw in on_host)
        return _Tokens(logits, draws, on_host, self._host, self._vocabulary)

    def prompt_logprobs(
        self, logits: StepLogits, *, first_row: int, targets: Sequence[int], top: int
    ) -> list[TokenLogprob]:
        rows = logits.on_host(range(first_row, first_row + len(targets)))
        return self._host.prompt_logprobs(rows, first_row=0, targets=targets, top=top)

    def forget(self, sequence_id: int) -> None:
        self._host.forget(sequence_id)
        self._numbers.pop(sequence_id, None)
        self._drawn_here.discard(sequence_id)

    def _number(self, draw: Draw) -> float:
        sequence = draw.sequence
        first, numbers = self._numbers.get(sequence.id, (0, []))
        if not first <= draw.position < first + len(numbers):
            first, numbers = (
                draw.position,
                uniforms(sequence.random_key, draw.position, NUMBERS_AHEAD),
            )
            self._numbers[sequence.id] = (first, numbers)
        return numbers[draw.position - first]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The PendingTokens of a step."""

    logits: StepLogits
    draws: Sequence[Draw]
    on_host: Sequence[Draw]
    """Those that the step did not make."""
    host: CpuSampler
    vocabulary: int

    @property
    def on_device(self) -> bool:
        return not self.on_host

    def read(self) -> Sequence[SampledToken]:
        drawn = self.logits.drawn()
        by_host = self._draw_on_host()
        tokens = []
        for draw in self.draws:
            token = by_host.get(draw.row) or SampledToken(drawn[draw.slot])
            if token.token_id < 0:
                raise BadLogitsError("the model's logits hold NaN or infinity")
            alternatives = _alternatives(draw.sequence.params, self.vocabulary)
            if alternatives is not None and token.logprob is None:
                token = self._scored(token.token_id, draw.slot, alternatives)
            tokens.append(token)
        return tokens

    def _scored(self, token_id: int, slot: int, alternatives: int) -> SampledToken:
        found = self.logits.scores(slot, alternatives)
        logprob = scored(
            token_id=token_id,
            logit=found.logit,
            largest=found.largest,
            mass=found.mass,
            best=found.best,
        )
        return SampledToken(token_id, logprob)

    def _draw_on_host(self) -> dict[int, SampledToken]:
        """By row of the logits."""
        if not self.on_host:
            return {}
        rows = self.logits.on_host([draw.row for draw in self.on_host])
        copies = [
            msgspec.structs.replace(draw, row=place) for place, draw in enumerate(self.on_host)
        ]
        tokens = self.host.sample(rows, copies).read()
        return {draw.row: token for draw, token in zip(self.on_host, tokens, strict=True)}


def _is_changed(params: SamplingParams, position: int) -> bool:
    """Whether there is more to a draw than its distribution."""
    return (
        params.logprobs is not None
        or bool(params.logit_bias)
        or params.penalized
        or (position <= params.min_tokens and bool(params.stop_token_ids))
    )


def _alternatives(params: SamplingParams, vocabulary: int) -> int | None:
    return None if params.logprobs is None else min(params.logprobs, vocabulary)


def _changed(how: StepDraw, draw: Draw, *, new: bool, vocabulary: int) -> StepDraw:
    """`new` if what the device keeps for the slot is not of this sequence, or not all of it."""
    params, sequence, position = draw.sequence.params, draw.sequence, draw.position
    biased = bool(params.logit_bias) or rules_out_stops(params, position)
    # Where the minimum length is reached, stop tokens are as good as any.
    renewed = new or (position == params.min_tokens and bool(params.stop_token_ids))
    counts = None
    if new and params.penalized:
        length = sequence.prompt_length
        counts = SlotCounts(sequence.tokens[:length], sequence.tokens[length:])
    return msgspec.structs.replace(
        how,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        alternatives=_alternatives(params, vocabulary),
        biased=biased,
        bias=bias_of(params, position) if biased and renewed else None,
        counts=counts,
    )
