"""Changes to a sequence's logits before a token is drawn: bias, minimum length, penalties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warmgraph_engine.sampling.arrays import Row
from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.sampling.sampler import SampledSequence


class TokenCounts:
    """How often each token occurs in a sequence's output, kept up to date token by token, so
    that a long output costs no more per step than a short one."""

    def __init__(self, sequence: SampledSequence) -> None:
        prompt = frozenset(sequence.tokens[: sequence.prompt_length])
        self._prompt = prompt
        self._prompt_ids = np.fromiter(prompt, dtype=np.intp, count=len(prompt))
        self._output: dict[int, int] = {}
        self._output_only: list[int] = []
        """Tokens of the output that the prompt lacks: each is penalized for repetition once."""
        self._seen = sequence.prompt_length

    def update(self, sequence: SampledSequence) -> None:
        for token in sequence.tokens[self._seen :]:
            self._add(token)
        self._seen = len(sequence.tokens)

    def penalize(self, row: Row, params: SamplingParams, *, drafts: Sequence[int] = ()) -> None:
        """Change a row of logits; drafts count like output, for this row."""
        for token in drafts:
            self._add(token)
        self._penalize(row, params)
        for token in reversed(drafts):
            self._take_back(token)

    def _add(self, token: int) -> None:
        before = self._output.get(token, 0)
        self._output[token] = before + 1
        if before == 0 and token not in self._prompt:
            self._output_only.append(token)

    def _take_back(self, token: int) -> None:
        """The inverse of _add, for the token added last."""
        self._output[token] -= 1
        if self._output[token] == 0:
            del self._output[token]
            if token not in self._prompt:
                self._output_only.pop()

    def _penalize(self, row: Row, params: SamplingParams) -> None:
        if params.repetition_penalty != 1.0:
            for ids in (self._prompt_ids, np.array(self._output_only, dtype=np.intp)):
                values = row[ids]
                penalty = np.float32(params.repetition_penalty)
                row[ids] = np.where(values > 0, values / penalty, values * penalty)
        if self._output and (params.presence_penalty or params.frequency_penalty):
            ids = np.fromiter(self._output.keys(), dtype=np.intp, count=len(self._output))
            counts = np.fromiter(self._output.values(), dtype=np.float64, count=len(self._output))
            row[ids] -= (params.presence_penalty + params.frequency_penalty * counts).astype("f4")


def apply_bias(row: Row, params: SamplingParams, position: int) -> None:
    """Add the request's logit bias, and rule out stop tokens below the minimum length."""
    for token, bias in bias_of(params, position).items():
        row[token] += np.float32(bias)


def bias_of(params: SamplingParams, position: int) -> dict[int, float]:
    """What is added to logits at a position of the output; minus infinity for a token that cannot
    be chosen there."""
    bias = dict(params.logit_bias)
    if rules_out_stops(params, position):
        bias |= dict.fromkeys(params.stop_token_ids, -np.inf)
    return bias


def rules_out_stops(params: SamplingParams, position: int) -> bool:
    return position < params.min_tokens and bool(params.stop_token_ids)


def changes_logits(params: SamplingParams) -> bool:
    return bool(params.logit_bias) or params.min_tokens > 0 or params.penalized
