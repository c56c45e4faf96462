"""Log-probabilities in the two shapes of OpenAI's interface."""

from __future__ import annotations

from typing import Any

from warmgraph_engine.server.choice import Scored
from warmgraph_engine.tokenizer.text import TextModel


def token_name(token: bytes) -> str:
    """A token as text; one that is not whole characters as OpenAI writes it, `bytes:\\xf0\\x9f`."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def chat_logprobs(scored: list[Scored], text: TextModel) -> dict[str, Any]:
    """`choices[].logprobs` of chat completions."""

    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        token = text.token_bytes(token_id)
        return {"token": token_name(token), "logprob": logprob, "bytes": list(token)}

    content = []
    for token in scored:
        if token.logprob is not None:
            top = [entry(*alternative) for alternative in token.logprob.top]
            content.append(entry(token.token_id, token.logprob.logprob) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def completion_logprobs(scored: list[Scored], text: TextModel) -> dict[str, Any]:
    """`choices[].logprobs` of completions. The chosen token is always among the alternatives."""
    tops: list[dict[str, float] | None] = []
    for token in scored:
        if token.logprob is None:
            tops.append(None)
        else:
            chosen = (token.token_id, token.logprob.logprob)
            alternatives = {
                token_name(text.token_bytes(token_id)): logprob
                for token_id, logprob in (*token.logprob.top, chosen)
            }
            tops.append(alternatives)
    return {
        "tokens": [token_name(text.token_bytes(token.token_id)) for token in scored],
        "token_logprobs": [token.logprob and token.logprob.logprob for token in scored],
        "top_logprobs": tops,
        "text_offset": [token.offset for token in scored],
    }
