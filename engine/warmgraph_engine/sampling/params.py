"""What a request may ask of sampling and of the length of its output, and which values are valid.

Ranges follow OpenAI's where OpenAI has the parameter, and vLLM's for the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_TOP_LOGPROBS = 20
"""OpenAI's limit. Each costs a partition of the vocabulary and about 30 bytes per token."""

MAX_BIAS = 100.0
"""OpenAI's limit: ±100 already means "always" or "never"."""

MAX_TEMPERATURE = 2.0
"""OpenAI's limit. Above it the choice is nearly uniform over the vocabulary."""

MIN_TEMPERATURE = 1e-2
"""Lower positive temperatures are raised to this: 1/T would overflow float32 on the way to
what is greedy in effect."""

MAX_LISTED_TOKENS = 1024
"""Most entries of logit_bias and of stop_token_ids: they are applied for every token, and the
other requests of the batch wait for it. OpenAI's documented limit for logit_bias is 300."""

MAX_SEED = 2**63 - 1
"""Seeds are 64-bit signed integers, as in OpenAI's interface."""


class InvalidParameterError(ValueError):
    """A request asks for something that is not possible; `parameter` names the field."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one request's tokens are chosen, and when its output ends."""

    max_tokens: int
    """Most tokens to generate; 0 only scores the prompt."""
    min_tokens: int = 0
    """No end-of-sequence or stop token can be chosen before this many."""
    stop_token_ids: frozenset[int] = frozenset()
    """Tokens that end the output: the model's own, unless the request ignores them, and the
    request's."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all."""
    min_p: float = 0.0
    """Least probability, as a share of the likeliest token's."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in prompt or output."""
    presence_penalty: float = 0.0
    """Subtracted once from tokens in the output."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence in the output."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    """None draws a key at random: two unseeded requests differ."""
    logprobs: int | None = None
    """How many alternatives to report per token; None reports nothing, 0 the chosen token only."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens."""

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def penalized(self) -> bool:
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    def validate(self, *, vocabulary: int) -> None:
        """Raise InvalidParameterError for the first value that is out of range."""
        check_range("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        check_range("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidParameterError("top_p", "top_p must be above 0 (and at most 1)")
        if self.top_k < 0:
            raise InvalidParameterError(
                "top_k", f"top_k must be at least 1, or 0 or -1 for no limit, got {self.top_k}"
            )
        check_range("min_p", self.min_p, 0.0, 1.0)
        check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        # vLLM's range is open upwards; beyond 100 a logit would be wiped out by one occurrence.
        check_range("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        check_range("max_tokens", self.max_tokens, 0, math.inf)
        check_range("min_tokens", self.min_tokens, 0, self.max_tokens)
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                check_range(name, count, 0, MAX_TOP_LOGPROBS)
        if self.seed is not None:
            check_range("seed", self.seed, -MAX_SEED - 1, MAX_SEED)
        check_vocabulary("stop_token_ids", self.stop_token_ids, vocabulary)
        if self.min_tokens and len(self.stop_token_ids) >= vocabulary:
            raise InvalidParameterError(
                "stop_token_ids",
                "min_tokens and stop_token_ids leave no token to choose",
            )
        check_vocabulary("logit_bias", self.logit_bias, vocabulary)
        for token, bias in self.logit_bias.items():
            check_range(f"logit_bias[{token}]", bias, -MAX_BIAS, MAX_BIAS)


def check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also refuses NaN
        bounds = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        field_name, _, _ = name.partition("[")
        raise InvalidParameterError(field_name, f"{name} must be {bounds}, got {value}")


def check_vocabulary(name: str, ids: Mapping[int, float] | frozenset[int], vocabulary: int) -> None:
    if len(ids) > MAX_LISTED_TOKENS:
        raise InvalidParameterError(
            name, f"{name} may have at most {MAX_LISTED_TOKENS} entries, got {len(ids)}"
        )
    for token in ids:
        if not 0 <= token < vocabulary:
            raise InvalidParameterError(
                name, f"{name}: token id {token} is outside the vocabulary (0 to {vocabulary - 1})"
            )
