"""POST /v1/completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from warmgraph_engine.sampling.randomness import random_key
from warmgraph_engine.scheduler.sequence import Sequence
from warmgraph_engine.server import validation
from warmgraph_engine.server.answer import Answer
from warmgraph_engine.server.body import read_body
from warmgraph_engine.server.choice import Choice, Piece
from warmgraph_engine.server.errors import bad_request
from warmgraph_engine.server.keys import SERVICE
from warmgraph_engine.server.logprobs import completion_logprobs
from warmgraph_engine.server.protocol import CompletionRequest
from warmgraph_engine.server.service import LoadedModel
from warmgraph_engine.tokenizer.text import TextModel

Prompt = str | list[int]


@dataclass(frozen=True, slots=True)
class CompletionShape:
    text: TextModel
    logprobs: bool
    prefix: str = "cmpl"
    whole: str = "text_completion"
    part: str = "text_completion"

    def choice(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": piece.text,
            "logprobs": completion_logprobs(piece.scored, self.text) if self.logprobs else None,
            "finish_reason": choice.finish_reason,
        }

    def opening(self, _choice: Choice, /) -> None:
        return None

    def delta(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        return self.choice(choice, piece)


async def completions(request: web.Request) -> web.StreamResponse:
    service = request.app[SERVICE]
    model = service.serving()
    body = await read_body(request, CompletionRequest)
    service.check_model(body.model)
    validation.check_completion(body)
    given = prompts(body.prompt, vocabulary=model.facts.limits.vocabulary)
    n = validation.choices(body, len(given))
    with model.engine.in_flight.open() as ticket:
        characters = sum(len(prompt) for prompt in given if isinstance(prompt, str))
        tokens = await service.tokenize(
            characters,
            lambda: [model.text.encode(p) if isinstance(p, str) else p for p in given],
        )
        choices = _choices(body, given, tokens, n, model)
        ticket.sequences = [choice.sequence for choice in choices]
        async with service.generation(choices) as generation:
            service.metrics.prompt_tokens.inc(sum(map(len, tokens)))
            shape = CompletionShape(model.text, logprobs=body.logprobs is not None)
            answer = Answer(shape, service.model_name, tokens)
            if body.stream:
                return await answer.stream(request, generation, body)
            return await answer.whole(request, generation)


def prompts(given: str | list[str | int | list[int]], *, vocabulary: int) -> list[Prompt]:
    """The four forms of `prompt` as a list of texts or of token lists."""
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(item, int) for item in given):
        found: list[Prompt] = [[item for item in given if isinstance(item, int)]]
    else:
        found = [item for item in given if not isinstance(item, int)]
        if len(found) != len(given) or len({type(prompt) for prompt in found}) > 1:
            raise bad_request(
                "prompt must be a text, a list of texts, a list of token ids, or a list of those",
                param="prompt",
            )
    if not found:
        raise bad_request("prompt is an empty list", param="prompt")
    for prompt in found:
        for token in prompt if isinstance(prompt, list) else ():
            if not 0 <= token < vocabulary:
                raise bad_request(
                    f"prompt: token id {token} is outside the vocabulary (0 to {vocabulary - 1})",
                    param="prompt",
                )
    return found


def _choices(
    body: CompletionRequest,
    given: list[Prompt],
    tokens: list[list[int]],
    n: int,
    model: LoadedModel,
) -> list[Choice]:
    stops = validation.stop_strings(body)
    skip_special = body.skip_special_tokens is not False
    choices: list[Choice] = []
    for prompt, ids in zip(given, tokens, strict=True):
        length = validation.output_length(
            len(ids),
            body.max_tokens,
            model.facts,
            default=validation.DEFAULT_COMPLETION_TOKENS,
            least=0 if body.echo else 1,
        )
        params = validation.sampling_params(body, model.facts, max_tokens=length)
        echo = None
        if body.echo:
            echo = (
                prompt
                if isinstance(prompt, str)
                else model.text.decode(ids, skip_special_tokens=skip_special)
            )
        for _ in range(n):
            index = len(choices)
            choices.append(
                Choice(
                    index=index,
                    sequence=Sequence(
                        tokens=list(ids), params=params, random_key=random_key(body.seed, index)
                    ),
                    text=model.text,
                    stops=stops,
                    skip_special_tokens=skip_special,
                    echo=echo,
                )
            )
    return choices
