"""One output being generated: its tokens, its place in the KV cache, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from warmgraph_engine.kv import BlockTable
from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.scheduler.ngram import NgramIndex


class FinishReason(StrEnum):
    """Why an output ended, in OpenAI's words."""

    STOP = "stop"
    """An end-of-sequence or stop token."""
    LENGTH = "length"
    """max_tokens or the model's maximum length."""


_ids = count(1)


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """A prompt and what was generated for it. A request has one of these per choice.

    Belongs to the engine thread once submitted; `id`, `prompt_length`, `params` and `admitted`
    may be read elsewhere.
    """

    tokens: list[int]
    """Prompt, then output."""
    params: SamplingParams
    random_key: tuple[int, int]
    prompt_length: int = field(init=False)
    id: int = field(default_factory=_ids.__next__, init=False)
    """Grows with arrival: the scheduler's one order of precedence."""
    blocks: BlockTable = field(default_factory=BlockTable, init=False)
    computed: int = field(default=0, init=False)
    """Positions whose keys and values are in the cache, or are written by a step already issued."""
    prefill_end: int = field(default=0, init=False)
    """Positions to compute before decoding goes on: the prompt, and after a preemption the
    output so far as well."""
    prompt_scored: int = field(default=0, init=False)
    """Prompt positions whose log-probabilities were asked for and issued."""
    slot: int = field(default=-1, init=False)
    """Its place in what a device keeps per running sequence; -1 while it does not run."""
    pending: int = field(default=0, init=False)
    """Tokens drawn by steps already issued whose results have not been read: 1 for each step, and
    1 more for each draft."""
    ended: bool = field(default=False, init=False)
    """Finished or cancelled. A step issued before that was known may still draw for it."""
    admitted: bool = field(default=False, init=False)
    """Has been given KV blocks at some time, so it is no longer waiting for its first step."""
    preemptions: int = field(default=0, init=False)
    ngrams: NgramIndex = field(default_factory=NgramIndex, init=False)
    """Where drafts come from; empty without speculative decoding."""

    def __post_init__(self) -> None:
        self.prompt_length = len(self.tokens)

    @property
    def prefilling(self) -> bool:
        return self.computed < self.prefill_end

    @property
    def decodable(self) -> bool:
        """Exactly its newest token is to be computed, and another may follow. False while the
        last token that it may have is still pending."""
        length = len(self.tokens) + self.pending
        return (
            self.prefill_end <= self.computed == length - 1
            and length - self.prompt_length < self.params.max_tokens
        )

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def draftable(self) -> int:
        """How many drafts may follow what was read: a token behind them is drawn too."""
        return self.params.max_tokens - self.generated - 1

    def append(self, token: int) -> FinishReason | None:
        """Add the token that was pending; returns why the output ends with it, or None."""
        self.pending -= 1
        self.tokens.append(token)
        if token in self.params.stop_token_ids:  # never drawn below min_tokens
            return FinishReason.STOP
        if self.generated >= self.params.max_tokens:
            return FinishReason.LENGTH
        return None
