"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from warmgraph_engine.sampling.randomness import random_key
from warmgraph_engine.scheduler.sequence import Sequence
from warmgraph_engine.server import validation
from warmgraph_engine.server.answer import Answer
from warmgraph_engine.server.body import read_body
from warmgraph_engine.server.choice import Choice, Piece
from warmgraph_engine.server.keys import SERVICE
from warmgraph_engine.server.logprobs import chat_logprobs
from warmgraph_engine.server.protocol import ChatCompletionRequest
from warmgraph_engine.server.service import LoadedModel, Service
from warmgraph_engine.tokenizer.chat import Message
from warmgraph_engine.tokenizer.text import TextModel


@dataclass(frozen=True, slots=True)
class ChatShape:
    text: TextModel
    logprobs: bool
    prefix: str = "chatcmpl"
    whole: str = "chat.completion"
    part: str = "chat.completion.chunk"

    def choice(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        return self._entry(choice, piece) | {"message": message}

    def opening(self, choice: Choice, /) -> dict[str, Any]:
        return {
            "index": choice.index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }

    def delta(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        return self._entry(choice, piece) | {"delta": {"content": piece.text} if piece.text else {}}

    def _entry(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        return {
            "index": choice.index,
            "logprobs": chat_logprobs(piece.scored, self.text) if self.logprobs else None,
            "finish_reason": choice.finish_reason,
        }


async def chat_completions(request: web.Request) -> web.StreamResponse:
    service = request.app[SERVICE]
    model = service.serving()
    body = await read_body(request, ChatCompletionRequest)
    service.check_model(body.model)
    validation.check_chat(body)
    messages = validation.messages(body.messages)
    n = validation.choices(body, 1)
    with model.engine.in_flight.open() as ticket:
        ids = await encode_messages(service, model, messages, body.chat_template_kwargs)
        choices = _choices(body, ids, n, model)
        ticket.sequences = [choice.sequence for choice in choices]
        async with service.generation(choices) as generation:
            service.metrics.prompt_tokens.inc(len(ids))
            shape = ChatShape(model.text, logprobs=bool(body.logprobs))
            answer = Answer(shape, service.model_name, [ids])
            if body.stream:
                return await answer.stream(request, generation, body)
            return await answer.whole(request, generation)


async def encode_messages(
    service: Service,
    model: LoadedModel,
    messages: Seq[Message],
    variables: dict[str, Any] | None,
) -> list[int]:
    """The prompt that a chat becomes."""
    characters = sum(len(message["content"]) for message in messages)
    return await service.tokenize(
        characters, lambda: model.text.encode_chat(messages, variables=variables)
    )


def _choices(
    body: ChatCompletionRequest, ids: list[int], n: int, model: LoadedModel
) -> list[Choice]:
    stops = validation.stop_strings(body)
    newer = body.max_completion_tokens is not None
    length = validation.output_length(
        len(ids),
        body.max_completion_tokens if newer else body.max_tokens,
        model.facts,
        param="max_completion_tokens" if newer else "max_tokens",
        prompt_param="messages",
    )
    params = validation.sampling_params(body, model.facts, max_tokens=length)
    return [
        Choice(
            index=index,
            sequence=Sequence(
                tokens=list(ids), params=params, random_key=random_key(body.seed, index)
            ),
            text=model.text,
            stops=stops,
            skip_special_tokens=body.skip_special_tokens is not False,
        )
        for index in range(n)
    ]
