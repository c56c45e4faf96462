"""Every bad request is answered in OpenAI's form, and the next good one is served."""

from __future__ import annotations

import gzip
import json

import openai
import pytest

from tests.engine.server.serving import MODEL
from warmgraph_engine.server.service import ServerSettings

MESSAGES = [{"role": "user", "content": "hello"}]

BAD_COMPLETIONS = {
    "unknown field": ({"max_token": 3}, "max_token", "unknown field"),
    "wrong type": ({"max_tokens": "three"}, "max_tokens", "expected `int`, got `str`"),
    "wrong type inside": ({"stop": ["a", 1]}, "stop[1]", "expected `str`"),
    "no prompt": ({"prompt": None}, "prompt", "got `null`"),
    "empty prompt": ({"prompt": ""}, "prompt", "empty"),
    "empty token list": ({"prompt": []}, "prompt", "empty"),
    "empty text in a list": ({"prompt": ["hello", ""]}, "prompt", "empty"),
    "mixed prompts": ({"prompt": ["hello", [1]]}, "prompt", "prompt must be"),
    "token id too large": ({"prompt": [1, 300]}, "prompt", "300 is outside the vocabulary"),
    "negative token id": ({"prompt": [-1]}, "prompt", "-1 is outside the vocabulary"),
    "prompt too long": ({"prompt": [1] * 200}, "prompt", "maximum length is 128 tokens"),
    "output too long": ({"max_tokens": 127}, "max_tokens", "2 in the prompt and 127 for the"),
    "max_tokens 0": ({"max_tokens": 0}, "max_tokens", "at least 1"),
    "max_tokens negative": ({"max_tokens": -3}, "max_tokens", "at least 1"),
    "huge max_tokens": ({"max_tokens": 10**30}, "max_tokens", ""),
    "n 0": ({"n": 0}, "n", "between 1 and 128"),
    "n too large": ({"n": 129}, "n", "between 1 and 128"),
    "n times prompts": ({"n": 65, "prompt": ["a", "b"]}, "n", "more than 128 outputs"),
    "temperature": ({"temperature": -1}, "temperature", "between 0.0 and 2.0"),
    "top_p 0": ({"top_p": 0}, "top_p", "above 0"),
    "top_k": ({"top_k": -2}, "top_k", "at least 1"),
    "min_p": ({"min_p": 1.1}, "min_p", "between 0.0 and 1.0"),
    "presence_penalty": ({"presence_penalty": 3}, "presence_penalty", "between -2.0 and 2.0"),
    "repetition_penalty": ({"repetition_penalty": 0}, "repetition_penalty", "between 0.01"),
    "logprobs": ({"logprobs": 21}, "logprobs", "between 0 and 20"),
    "min above max": ({"min_tokens": 9, "max_tokens": 8}, "min_tokens", "between 0 and 8"),
    "bias outside": ({"logit_bias": {"300": 1}}, "logit_bias", "300 is outside the vocabulary"),
    "bias too strong": ({"logit_bias": {"3": 101}}, "logit_bias", "between -100.0 and 100.0"),
    "bias not a token": ({"logit_bias": {"x": 1}}, "logit_bias", "expected `int`, got `str`"),
    "stop token outside": ({"stop_token_ids": [300]}, "stop_token_ids", "300 is outside"),
    "too many stops": ({"stop": ["a"] * 17}, "stop", "at most 16"),
    "empty stop": ({"stop": [""]}, "stop", "1 to 1024 characters"),
    "seed": ({"seed": 2**63}, "seed", "between"),
    "suffix": ({"suffix": "x"}, "suffix", "not supported"),
    "best_of": ({"best_of": 3}, "best_of", "not supported"),
    "stream_options alone": ({"stream_options": {}}, "stream_options", "needs stream"),
    "stream option unknown": (
        {"stream": True, "stream_options": {"x": 1}},
        "stream_options.x",
        "unknown field",
    ),
    "response_format": ({"response_format": {"type": "json_object"}}, "response_format", "plain"),
}

BAD_CHATS = {
    "no messages": ({"messages": []}, "messages", "at least one"),
    "unknown role": ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role", "boss"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
    "unknown message field": (
        {"messages": [{"role": "user", "content": "x", "mood": "good"}]},
        "messages[0].mood",
        "unknown field",
    ),
    "image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0]",
        "'image_url' are not supported",
    ),
    "tool message": ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]", "tool"),
    "tools": ({"tools": [{"type": "function"}]}, "tools", "tools is not supported"),
    "tool_choice": ({"tool_choice": "required"}, "tool_choice", "not supported"),
    "functions": ({"functions": [{}]}, "functions", "not supported"),
    "modalities": ({"modalities": ["audio"]}, "modalities", "not supported"),
    "top_logprobs alone": ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
    "top_logprobs": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "between 0 and 20"),
    "both lengths": (
        {"max_tokens": 2, "max_completion_tokens": 2},
        "max_tokens",
        "two names of one setting",
    ),
    "too long": ({"max_completion_tokens": 120}, "max_completion_tokens", "maximum length is 128"),
    "prompt too long": ({"messages": [{"role": "user", "content": "x" * 500}]}, "messages", "128"),
    "response_format": (
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format",
        "'json_schema' is not supported",
    ),
}


@pytest.mark.parametrize(
    ("fields", "param", "message"), BAD_COMPLETIONS.values(), ids=BAD_COMPLETIONS
)
async def test_a_bad_completion_names_its_field(served, fields, param, message):
    body = {"model": MODEL, "prompt": "hello"} | fields
    await _check_refused(served, "/v1/completions", body, param, message)


@pytest.mark.parametrize(("fields", "param", "message"), BAD_CHATS.values(), ids=BAD_CHATS)
async def test_a_bad_chat_names_its_field(served, fields, param, message):
    body = {"model": MODEL, "messages": MESSAGES} | fields
    await _check_refused(served, "/v1/chat/completions", body, param, message)


async def _check_refused(served, path, body, param, message):
    status, answer = await served.post(path, body)
    assert status == 400, answer
    error = answer["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert message in error["message"]
    assert served.engine.executor.steps == []
    assert served.engine.loop.load().in_flight == 0
    assert (await served.complete(max_tokens=2))["finish_reason"] == "length"
    assert served.value("warmgraph_requests_total", outcome="invalid") == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model": "toy", "prompt": "\\ud800"}', b"[" * 5000],
    ids=["empty", "cut off", "a list", "null", "not UTF-8", "half a surrogate", "nested deeply"],
)
async def test_a_body_that_is_no_json_object_is_refused(served, content):
    response = await served.client.post("/v1/completions", data=content)
    answer = await response.json()
    assert response.status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    await served.complete(max_tokens=1)


@pytest.mark.parametrize("field", ["user", "metadata"])
async def test_a_field_that_is_nested_too_deeply_is_refused(served, field):
    depth = 100_000
    content = f'{{"model": "{MODEL}", "prompt": "a", "{field}": {"[" * depth}{"]" * depth}}}'
    response = await served.client.post("/v1/completions", data=content.encode())
    assert response.status == 400
    assert (await response.json())["error"]["message"] == "the body is nested too deeply"
    await served.complete(max_tokens=1)


async def test_a_body_that_is_not_encoded_as_it_says_is_refused(served):
    response = await served.client.post(
        "/v1/completions", data=b"not gzip", headers={"Content-Encoding": "gzip"}
    )
    assert response.status == 400
    message = (await response.json())["error"]["message"]
    assert message == "the body cannot be read: Can not decode content-encoding: gzip"
    await served.complete(max_tokens=1)


async def test_a_compressed_body_counts_by_its_full_size(serve):
    served = await serve(settings=ServerSettings(max_body_bytes=1000))
    body = json.dumps({"model": MODEL, "prompt": "a" * 100_000}).encode()
    response = await served.client.post(
        "/v1/completions", data=gzip.compress(body), headers={"Content-Encoding": "gzip"}
    )
    assert response.status == 413
    body = json.dumps({"model": MODEL, "prompt": "hello"}).encode()
    response = await served.client.post(
        "/v1/completions", data=gzip.compress(body), headers={"Content-Encoding": "gzip"}
    )
    assert response.status == 200


async def test_a_request_that_fits_the_model_but_not_the_kv_cache_is_refused(serve):
    served = await serve(blocks=10)  # 40 positions; the model could take 128
    status, answer = await served.post(
        "/v1/completions", {"model": MODEL, "prompt": "hello", "max_tokens": 40}
    )
    assert status == 400
    assert answer["error"]["code"] == "kv_cache_exceeded"
    assert "2 tokens for the prompt and 40 for the output" in answer["error"]["message"]
    assert "holds 40" in answer["error"]["message"]
    status, answer = await served.post("/v1/completions", {"model": MODEL, "prompt": [1] * 41})
    assert answer["error"]["code"] == "kv_cache_exceeded"
    choice = await served.complete(max_tokens=39, ignore_eos=True)
    assert choice["finish_reason"] == "length"


async def test_without_max_tokens_a_chat_may_fill_what_fits(serve):
    served = await serve(blocks=10)
    answer = await served.openai.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "h"}], extra_body={"ignore_eos": True}
    )
    # The last token is never fed back, so one more fits than the cache has positions.
    assert answer.usage.total_tokens == 41
    assert answer.choices[0].finish_reason == "length"


async def test_a_large_body_is_refused_and_the_next_request_served(serve):
    served = await serve(settings=ServerSettings(max_body_bytes=1000))
    status, answer = await served.post("/v1/completions", {"model": MODEL, "prompt": "x" * 2000})
    assert status == 413
    assert answer["error"]["message"] == "the body is larger than 1000 bytes"
    await served.complete(max_tokens=1)


async def test_an_unknown_model_is_not_found(served):
    with pytest.raises(openai.NotFoundError, match="the model 'gpt-9' does not exist here") as info:
        await served.openai.completions.create(model="gpt-9", prompt="x")
    assert info.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/embeddings", 404),
    ],
)
async def test_wrong_methods_and_paths_are_said_in_the_same_form(served, method, path, status):
    response = await served.client.request(method, path)
    assert response.status == status
    error = (await response.json())["error"]
    assert path in error["message"]
    assert (response.headers.get("Allow") is not None) == (status == 405)


async def test_a_template_that_refuses_the_messages_is_a_bad_request(served, tmp_path):
    from tests.engine.texts import VOCABULARY, write_model_folder
    from warmgraph_engine.tokenizer.text import TextModel

    template = "{{ raise_exception('roles must alternate') }}"
    folder = write_model_folder(tmp_path, tokenizer_config={"chat_template": template})
    strict = TextModel.load(folder, vocabulary=VOCABULARY)
    served.service._loaded = type(served.service._loaded)(
        served.engine.loop, strict, served.service._loaded.facts
    )
    status, answer = await served.post(
        "/v1/chat/completions", {"model": MODEL, "messages": MESSAGES}
    )
    assert status == 400
    assert "roles must alternate" in answer["error"]["message"]
    await served.complete(max_tokens=1)


async def test_known_fields_without_effect_are_accepted(served):
    ignored = {
        "user": "me",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "y",
        "parallel_tool_calls": True,
        "reasoning_effort": None,
        "response_format": {"type": "text"},
        "tools": [],
        "tool_choice": "none",
    }
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 2} | ignored
    status, answer = await served.post("/v1/chat/completions", body)
    assert status == 200, json.dumps(answer)


async def test_null_stands_for_a_field_that_is_not_given(served):
    nulls = dict.fromkeys(
        ["max_tokens", "stop", "seed", "temperature", "top_p", "n", "logit_bias", "stream", "user"]
    )
    body = {"model": MODEL, "messages": MESSAGES} | nulls
    status, answer = await served.post("/v1/chat/completions", body)
    assert status == 200, json.dumps(answer)
