"""No body whatsoever breaks the server: it is answered, and the next request is served."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.server.serving import MODEL, start_server, stop_server

NUMBERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 140),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-2, 2),
)
JUNK = st.recursive(
    st.one_of(NUMBERS, st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
TOKENS = st.lists(st.integers(-1, 301), max_size=12)
COMMON = {
    "n": st.one_of(st.integers(1, 3), NUMBERS),
    "max_tokens": st.one_of(st.integers(1, 20), NUMBERS),
    "min_tokens": NUMBERS,
    "stop": st.one_of(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=3)),
    "seed": NUMBERS,
    "temperature": NUMBERS,
    "top_p": NUMBERS,
    "top_k": NUMBERS,
    "min_p": NUMBERS,
    "presence_penalty": NUMBERS,
    "frequency_penalty": NUMBERS,
    "repetition_penalty": NUMBERS,
    "logit_bias": st.dictionaries(st.integers(-1, 301).map(str), NUMBERS, max_size=3),
    "stop_token_ids": TOKENS,
    "ignore_eos": st.booleans(),
    "skip_special_tokens": st.booleans(),
    "stream": st.booleans(),
    "stream_options": st.one_of(st.just({"include_usage": True}), JUNK),
    "user": JUNK,
    "response_format": st.one_of(st.just({"type": "text"}), JUNK),
}
PROMPT = st.one_of(
    st.text(min_size=1, max_size=20), TOKENS, st.lists(st.text(max_size=5), max_size=3), JUNK
)
COMPLETION = {
    "echo": st.booleans(),
    "logprobs": NUMBERS,
    "best_of": NUMBERS,
}
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "developer", "tool", "x"])},
    optional={
        "content": st.one_of(
            st.text(max_size=20),
            st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=5)})),
            JUNK,
        ),
        "name": st.text(max_size=5),
        "tool_calls": JUNK,
    },
)
GOOD_MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "system", "assistant", "developer"]),
        "content": st.text(max_size=20),
    }
)
MESSAGES = st.one_of(
    st.lists(GOOD_MESSAGE, min_size=1, max_size=3), st.lists(MESSAGE, max_size=3), JUNK
)
CHAT = {
    "logprobs": st.booleans(),
    "top_logprobs": NUMBERS,
    "max_completion_tokens": NUMBERS,
    "chat_template_kwargs": JUNK,
    "tools": JUNK,
}
SETTINGS = settings(
    max_examples=160, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def body_of(required: dict, optional: dict):
    """Bodies with a few of the optional fields: with all of them hardly one would be valid."""
    names = st.lists(st.sampled_from([*optional, "surprise"]), max_size=4, unique=True)
    fields = optional | {"surprise": JUNK}
    return names.flatmap(
        lambda chosen: st.fixed_dictionaries(
            {"model": st.just(MODEL), **required, **{name: fields[name] for name in chosen}}
        )
    )


def check_never_breaks(runner, text, path, strategy, encode) -> list[int]:
    """Returns the statuses of the answers."""
    served = runner.run(start_server(text, max_waiting=10_000))

    statuses: list[int] = []

    async def example(content: bytes) -> None:
        async with served.client.post(path, data=content) as response:
            answer = await response.text()
            assert response.status in {200, 400}, answer
            statuses.append(response.status)
            if response.status == 200 and response.content_type == "application/json":
                assert json.loads(answer)["usage"]["completion_tokens"] >= 0
            elif response.status == 200:
                assert answer.endswith("data: [DONE]\n\n")
            else:
                assert json.loads(answer)["error"]["message"]
        assert (await served.complete(max_tokens=1))["finish_reason"] == "length"
        assert served.engine.faults == []

    @SETTINGS
    @given(strategy)
    def examples(content):
        runner.run(example(encode(content)))

    try:
        examples()
        assert served.engine.loop.load().in_flight == 0
        assert served.blocks_used == 0
    finally:
        runner.run(stop_server(served))
    return statuses


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("path", "strategy", "encode", "least_valid"),
    [
        (
            "/v1/completions",
            body_of({"prompt": PROMPT}, COMMON | COMPLETION),
            lambda body: json.dumps(body).encode(),
            15,
        ),
        (
            "/v1/chat/completions",
            body_of({"messages": MESSAGES}, COMMON | CHAT),
            lambda body: json.dumps(body).encode(),
            15,
        ),
        ("/v1/completions", JUNK, lambda body: json.dumps(body).encode(), 0),
        ("/v1/chat/completions", st.binary(max_size=60), lambda body: body, 0),
    ],
    ids=["completions", "chats", "any JSON", "any bytes"],
)
def test_no_body_breaks_the_server(text, path, strategy, encode, least_valid):
    with asyncio.Runner() as runner:
        statuses = check_never_breaks(runner, text, path, strategy, encode)
    assert statuses.count(200) >= least_valid, "the examples hardly reach the engine"
