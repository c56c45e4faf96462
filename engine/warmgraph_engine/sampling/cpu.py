"""The sampler of the CPU backend: numpy over rows of float32 logits.

The order is vLLM's: log-probabilities from the raw logits; logit bias and minimum length;
penalties; temperature; min_p; top_k; top_p; one draw. Each row is computed by itself, with
operations whose result does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmgraph_engine.sampling import penalties
from warmgraph_engine.sampling.arrays import Logits, Row, Sums, TokenIds
from warmgraph_engine.sampling.logprobs import largest_ids, token_logprob
from warmgraph_engine.sampling.params import MIN_TEMPERATURE, SamplingParams
from warmgraph_engine.sampling.randomness import uniform
from warmgraph_engine.sampling.sampler import (
    BadLogitsError,
    Draw,
    SampledToken,
    TokenLogprob,
)

NUCLEUS_GUESS = 1024
"""Weights sorted at first for top_p. Language models put nearly any top_p within them; when they
don't, the whole row is sorted, at about four times the cost."""

CDF_BLOCK = 256
"""Values summed at a time when drawing from the whole vocabulary: near the square root of usual
vocabularies, so that both levels of the search are short."""


@dataclass(frozen=True, slots=True)
class ReadyTokens:
    """On the CPU the tokens are there when `sample` returns."""

    tokens: list[SampledToken]
    on_device: bool = False

    def read(self) -> Sequence[SampledToken]:
        return self.tokens


class CpuSampler:
    """See `Sampler`. Logits are numpy arrays of float32, shape (rows, vocabulary)."""

    def __init__(self, *, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._counts: dict[int, penalties.TokenCounts] = {}
        self._scratch = np.empty(vocabulary, dtype=np.float32)

    def in_step(self, _draw: Draw, /) -> None:
        return None

    def sample(self, logits: Logits, draws: Sequence[Draw]) -> ReadyTokens:
        tokens: list[SampledToken] = []
        for draw in draws:
            if draw.drafts and draw.drafts[-1] != tokens[-1].token_id:
                tokens.append(tokens[-1])  # does not count, so it need not cost anything
            else:
                tokens.append(self._draw(logits[draw.row], draw))
        return ReadyTokens(tokens)

    def prompt_logprobs(
        self, logits: Logits, *, first_row: int, targets: Sequence[int], top: int
    ) -> list[TokenLogprob]:
        return [
            token_logprob(self._checked(logits[first_row + offset]), token_id=target, top=top)
            for offset, target in enumerate(targets)
        ]

    def forget(self, sequence_id: int) -> None:
        self._counts.pop(sequence_id, None)

    def _draw(self, raw: Row, draw: Draw) -> SampledToken:
        self._checked(raw)
        params = draw.sequence.params
        row = self._changed(raw, draw) if penalties.changes_logits(params) else raw
        if params.greedy:
            token = int(row.argmax())
        else:
            number = uniform(draw.sequence.random_key, draw.position)
            token = draw_token(row, params, number, scratch=self._scratch)
        if params.logprobs is None:
            return SampledToken(token)
        return SampledToken(token, token_logprob(raw, token_id=token, top=params.logprobs))

    def _changed(self, raw: Row, draw: Draw) -> Row:
        row, sequence = raw.copy(), draw.sequence
        penalties.apply_bias(row, sequence.params, draw.position)
        if sequence.params.penalized:
            counts = self._counts.get(sequence.id)
            if counts is None:
                counts = self._counts[sequence.id] = penalties.TokenCounts(sequence)
            counts.update(sequence)
            counts.penalize(row, sequence.params, drafts=draw.drafts)
        return row

    def _checked(self, row: Row) -> Row:
        if row.shape != (self._vocabulary,):
            raise BadLogitsError(f"logits of shape {row.shape} for {self._vocabulary} tokens")
        # The maximum is NaN if any value is, and infinite if any overflowed or all are masked.
        if not np.isfinite(row.max()):
            raise BadLogitsError("the model's logits hold NaN or infinity")
        return row


def draw_token(row: Row, params: SamplingParams, number: float, *, scratch: Row) -> int:
    """The token at `number` (0 ≤ number < 1) of the distribution that `params` make of `row`, with
    the tokens in order of their ids.

    `scratch` has the row's shape and is overwritten: a fresh array of this size would be mapped
    and faulted in page by page, every time.
    """
    np.subtract(row, row.max(), out=scratch)
    scratch *= np.float32(1.0 / max(params.temperature, MIN_TEMPERATURE))
    if 0 < params.top_k < row.size:
        ids = largest_ids(scratch, params.top_k)
        weights = np.exp(scratch[ids])
        weights = weights[weights >= params.min_p]
        mass = params.top_p * float(weights.sum(dtype=np.float64))
        size = min(_nucleus_size(weights, mass), weights.size)
        order = np.argsort(ids[:size])
        return int(ids[order[_search(weights[order], number)]])
    weights = np.exp(scratch, out=scratch)
    if params.min_p > 0.0:
        weights[weights < params.min_p] = 0.0
    if params.top_p < 1.0:
        ids = _nucleus(weights, params.top_p)
        return int(ids[_search(weights[ids], number)])
    return _search_blocks(weights, number)


def _nucleus(weights: Row, top_p: float) -> TokenIds:
    """Ids, ascending, of the fewest largest weights that reach `top_p` of the total. Of equal
    weights at the edge the lowest ids are kept."""
    total = float(weights.sum(dtype=np.float64))
    for count in (min(NUCLEUS_GUESS, weights.size), weights.size):
        largest = np.partition(weights, weights.size - count)[weights.size - count :]
        descending = np.sort(largest)[::-1]
        size = _nucleus_size(descending, top_p * total)
        if size <= count:
            break
    size = min(size, weights.size)
    edge = descending[size - 1]
    ids = np.flatnonzero(weights >= edge)
    if ids.size > size:
        surplus = ids[weights[ids] == edge][size - ids.size :]
        ids = np.setdiff1d(ids, surplus, assume_unique=True)
    return ids


def _nucleus_size(descending: Row, mass: float) -> int:
    """How many of the largest weights reach this mass; one more than there are if all don't."""
    return int(np.searchsorted(np.cumsum(descending, dtype=np.float64), mass)) + 1


def _search(weights: Row, number: float) -> int:
    sums = np.cumsum(weights, dtype=np.float64)
    return _index_above(sums, number * sums[-1])


def _search_blocks(weights: Row, number: float) -> int:
    """`_search` over a whole vocabulary: sums of blocks first, then inside one block."""
    whole = weights.size // CDF_BLOCK * CDF_BLOCK
    block_sums = weights[:whole].reshape(-1, CDF_BLOCK).sum(axis=1)
    sums = np.cumsum(np.append(block_sums, weights[whole:].sum()), dtype=np.float64)
    target = number * sums[-1]
    block = _index_above(sums, target)
    before = sums[block - 1] if block else 0.0
    start = block * CDF_BLOCK
    inside = before + np.cumsum(weights[start : start + CDF_BLOCK], dtype=np.float64)
    return start + _index_above(inside, target)


def _index_above(sums: Sums, target: float) -> int:
    """First index whose running sum is above the target. Rounding can leave none: then the last
    index that added anything, never one of weight 0."""
    index = int(np.searchsorted(sums, target, side="right"))
    return index if index < sums.size else int(np.searchsorted(sums, sums[-1], side="left"))
