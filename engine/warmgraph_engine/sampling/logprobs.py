"""Log-probabilities of tokens, from rows of raw logits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from warmgraph_engine.sampling.arrays import Row, TokenIds
from warmgraph_engine.sampling.sampler import TokenLogprob

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot carry; OpenAI and vLLM use the same number."""


def token_logprob(row: Row, *, token_id: int, top: int) -> TokenLogprob:
    """Score one token under one row of logits of shape (vocabulary,)."""
    largest = row.max()
    return scored(
        token_id=token_id,
        logit=float(row[token_id]),
        largest=float(largest),
        mass=float(np.exp(row - largest).sum(dtype=np.float64)),
        best=[(int(token), float(row[token])) for token in largest_ids(row, top)],
    )


def scored(
    *, token_id: int, logit: float, largest: float, mass: float, best: Sequence[tuple[int, float]]
) -> TokenLogprob:
    """The score of a token with this logit, under a row with this largest logit and this sum of
    exp(logit - largest); `best` are the likeliest tokens with their logits."""
    log_total = largest + math.log(mass)
    return TokenLogprob(
        token_id=token_id,
        logprob=_finite(logit - log_total),
        top=tuple((token, _finite(value - log_total)) for token, value in best),
    )


def largest_ids(row: Row, count: int) -> TokenIds:
    """Ids of the `count` largest values, descending; equal values in ascending order of id.

    Which of several equal values at the edge are kept does not matter to a caller who may see
    any of them, but has to be the same every time: the lowest ids are.
    """
    count = min(count, row.size)
    if count == 0:
        return np.empty(0, dtype=np.intp)
    if count == row.size:
        candidates = np.arange(row.size)
    else:
        edge = row[np.argpartition(row, -count)[-count]]
        candidates = np.flatnonzero(row >= edge)
    return candidates[np.argsort(-row[candidates], kind="stable")][:count]


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
