"""The bodies of requests, field by field. Unknown fields are refused by name: a misspelt
`max_token` that is silently dropped costs more than an error.

Types and fields are checked here, values by the code that uses them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    """Padding against traffic analysis; accepted and not done."""


class ResponseFormat(msgspec.Struct, frozen=True):
    type: str


class Ignored(msgspec.Struct, kw_only=True):
    """Fields of OpenAI's interface that change nothing about the output here: accepted, so that
    its clients work, and not looked at."""

    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    parallel_tool_calls: Any = None


class Common(Ignored, kw_only=True, forbid_unknown_fields=True):
    """What both generating endpoints take. None means not given, as in OpenAI's clients."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    response_format: ResponseFormat | None = None
    # vLLM's additions
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    skip_special_tokens: bool | None = None


class CompletionRequest(Common, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: int | None = None
    best_of: int | None = None
    suffix: str | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """Of a message whose content is a list. Other types than text are refused by name."""

    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    refusal: Any = None
    annotations: Any = None
    audio: Any = None
    reasoning_content: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    tool_call_id: Any = None
    """The last ones come back when a client sends an earlier answer again; all but null values of
    those about tools are refused."""


class ChatCompletionRequest(Common, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    # Known and not supported: refused with a reason unless they ask for nothing.
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /tokenize: a prompt, or messages as the chat endpoint would see them."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]
