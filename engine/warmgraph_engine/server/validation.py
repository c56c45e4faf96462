"""From a request's fields to sampling parameters, with every value checked.

Pure: takes what the model and the engine can do, returns plain values, raises ApiError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warmgraph_engine.kv import positions_of
from warmgraph_engine.sampling.params import MAX_TOP_LOGPROBS, InvalidParameterError, SamplingParams
from warmgraph_engine.server.errors import bad_request
from warmgraph_engine.server.protocol import (
    ChatCompletionRequest,
    ChatMessage,
    Common,
    CompletionRequest,
)
from warmgraph_engine.step import Limits
from warmgraph_engine.tokenizer.files import SamplingDefaults

MAX_CHOICES = 128
"""OpenAI's limit for n; here also for the number of prompts times n of one request."""

MAX_STOPS = 16
"""OpenAI allows 4. Each is searched for in every piece of text."""

MAX_STOP_CHARACTERS = 1024
"""A stop string holds back up to its own length of the stream."""

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default of max_tokens for /v1/completions; chat has none but what fits."""

ROLES = frozenset({"system", "developer", "user", "assistant"})


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What validation needs to know."""

    limits: Limits
    eos_token_ids: frozenset[int]
    defaults: SamplingDefaults

    @property
    def kv_positions(self) -> int:
        return self.limits.blocks * self.limits.block_size


def sampling_params(
    request: CompletionRequest | ChatCompletionRequest, facts: ModelFacts, *, max_tokens: int
) -> SamplingParams:
    """Raises ApiError that names the first wrong field."""
    defaults = facts.defaults
    stops = frozenset(request.stop_token_ids or ())
    if not request.ignore_eos:
        stops |= facts.eos_token_ids
    top = _top_logprobs(request)
    params = SamplingParams(
        max_tokens=max_tokens,
        min_tokens=request.min_tokens or 0,
        stop_token_ids=stops,
        temperature=_first(request.temperature, defaults.temperature, 1.0),
        top_p=_first(request.top_p, defaults.top_p, 1.0),
        top_k=max(0, top_k) if (top_k := _first(request.top_k, defaults.top_k, 0)) >= -1 else top_k,
        min_p=_first(request.min_p, defaults.min_p, 0.0),
        repetition_penalty=_first(request.repetition_penalty, defaults.repetition_penalty, 1.0),
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        logit_bias=request.logit_bias or {},
        seed=request.seed,
        logprobs=top,
        prompt_logprobs=top if isinstance(request, CompletionRequest) and request.echo else None,
    )
    try:
        params.validate(vocabulary=facts.limits.vocabulary)
    except InvalidParameterError as error:
        raise bad_request(str(error), param=error.parameter) from error
    return params


def output_length(
    prompt: int,
    asked: int | None,
    facts: ModelFacts,
    *,
    default: int | None = None,
    least: int = 1,
    param: str = "max_tokens",
    prompt_param: str = "prompt",
) -> int:
    """How many tokens may follow a prompt of this many. Asked for too many is refused with the
    numbers; not asked for, it is the default or what fits."""
    limits = facts.limits
    longest = limits.max_model_length
    if prompt == 0:
        raise bad_request(
            "the prompt is empty: it must have at least one token", param=prompt_param
        )
    if asked is not None and asked < least:
        raise bad_request(f"{param} must be at least {least}, got {asked}", param=param)
    if prompt + (asked or 0) > longest or (prompt == longest and asked is None):
        rest = f" and {asked} for the output" if asked else ""
        raise bad_request(
            f"this model's maximum length is {longest} tokens, but the request needs more: "
            f"{prompt} in the prompt{rest}",
            param=param if asked and prompt < longest else prompt_param,
            code="context_length_exceeded",
        )
    # One more than the cache holds: see positions_of.
    room = facts.kv_positions - prompt + 1
    fits = min(room, longest - prompt)
    if room < 1 or positions_of(prompt, asked or 0) > facts.kv_positions:
        rest = f" and {asked} for the output" if asked else ""
        raise bad_request(
            f"the request needs {prompt} tokens for the prompt{rest}; the KV cache of this server "
            f"holds {facts.kv_positions}",
            param=param if asked else prompt_param,
            code="kv_cache_exceeded",
        )
    if asked is not None:
        return asked
    return fits if default is None else min(default, fits)


def choices(request: Common, prompts: int) -> int:
    """Outputs per prompt."""
    n = 1 if request.n is None else request.n
    if not 1 <= n <= MAX_CHOICES:
        raise bad_request(f"n must be between 1 and {MAX_CHOICES}, got {n}", param="n")
    if n * prompts > MAX_CHOICES:
        raise bad_request(
            f"{prompts} prompts times n = {n} is more than {MAX_CHOICES} outputs",
            param="n",
        )
    return n


def stop_strings(request: Common) -> list[str]:
    stops = [request.stop] if isinstance(request.stop, str) else list(request.stop or ())
    if len(stops) > MAX_STOPS:
        raise bad_request(
            f"stop may have at most {MAX_STOPS} strings, got {len(stops)}", param="stop"
        )
    for stop in stops:
        if not 0 < len(stop) <= MAX_STOP_CHARACTERS:
            raise bad_request(
                f"a stop string must have 1 to {MAX_STOP_CHARACTERS} characters, got {len(stop)}",
                param="stop",
            )
    return stops


def check_options(request: Common) -> None:
    """Combinations that hold for both endpoints."""
    if request.stream_options is not None and not request.stream:
        raise bad_request("stream_options needs stream: true", param="stream_options")
    if request.response_format is not None and request.response_format.type != "text":
        raise bad_request(
            f"response_format {request.response_format.type!r} is not supported: "
            'this server writes plain text only ("text")',
            param="response_format",
        )


def check_completion(request: CompletionRequest) -> None:
    check_options(request)
    if request.suffix:
        raise bad_request("suffix (insertion) is not supported", param="suffix")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise bad_request("best_of is not supported beyond n", param="best_of")


def check_chat(request: ChatCompletionRequest) -> None:
    check_options(request)
    for name, neutral in _UNSUPPORTED_IN_CHAT.items():
        value = getattr(request, name)
        if value is not None and value not in neutral:
            raise bad_request(f"{name} is not supported by this server", param=name)
    if request.top_logprobs is not None and not request.logprobs:
        raise bad_request("top_logprobs needs logprobs: true", param="top_logprobs")
    if not 0 <= (request.top_logprobs or 0) <= MAX_TOP_LOGPROBS:
        raise bad_request(
            f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}, got {request.top_logprobs}",
            param="top_logprobs",
        )
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise bad_request(
            "max_tokens and max_completion_tokens are two names of one setting: give one",
            param="max_tokens",
        )


def messages(given: list[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as chat templates take them: role and content as text."""
    if not given:
        raise bad_request("messages must have at least one message", param="messages")
    return [_message(message, index) for index, message in enumerate(given)]


def _message(message: ChatMessage, index: int) -> dict[str, Any]:
    where = f"messages[{index}]"
    if message.tool_calls or message.function_call or message.role in {"tool", "function"}:
        raise bad_request("tool calls are not supported by this server", param=where)
    if message.role not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise bad_request(
            f"{where}.role: {message.role!r} is not a role; known are {known}",
            param=f"{where}.role",
        )
    if message.content is None:
        raise bad_request(f"{where}.content is missing", param=f"{where}.content")
    # OpenAI's newer name for the same thing; chat templates know the older one.
    role = "system" if message.role == "developer" else message.role
    text = {"role": role, "content": _content(message, where)}
    return text if message.name is None else text | {"name": message.name}


def _content(message: ChatMessage, where: str) -> str:
    if isinstance(message.content, str):
        return message.content
    texts = []
    for index, part in enumerate(message.content or ()):
        at = f"{where}.content[{index}]"
        if part.type != "text":
            raise bad_request(
                f"{at}: parts of type {part.type!r} are not supported, only text", param=at
            )
        if part.text is None:
            raise bad_request(f"{at}.text is missing", param=at)
        texts.append(part.text)
    return "".join(texts)


def _top_logprobs(request: CompletionRequest | ChatCompletionRequest) -> int | None:
    if isinstance(request, CompletionRequest):
        return request.logprobs
    return (request.top_logprobs or 0) if request.logprobs else None


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


# A chat request may name these if it asks for nothing by them.
_UNSUPPORTED_IN_CHAT: dict[str, tuple[object, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
}
