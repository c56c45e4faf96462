from __future__ import annotations

import itertools

import pytest

from tests.engine.server.serving import MODEL, greedy
from tests.engine.toy import toy_logits_of


async def test_text_usage_and_reason_are_what_the_model_and_the_request_say(served):
    completion = await served.openai.completions.create(
        model=MODEL, prompt="hello", max_tokens=7, temperature=0, extra_body={"ignore_eos": True}
    )
    prompt = served.text.encode("hello")
    expected = served.text.detokenizer(prompt, skip_special_tokens=True).feed(greedy(prompt, 7))
    assert completion.choices[0].text == expected
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage.prompt_tokens == len(prompt) == 2
    assert completion.usage.completion_tokens == 7
    assert completion.usage.total_tokens == 9
    assert completion.object == "text_completion"
    assert completion.model == MODEL


async def test_a_prompt_of_token_ids_is_the_same_as_its_text(served):
    ids = served.text.encode("hello world")
    assert await served.complete(prompt=ids) == await served.complete(prompt="hello world")
    assert await served.complete(prompt=[ids]) == await served.complete(prompt=["hello world"])


async def test_a_list_of_prompts_times_n_comes_in_order(served):
    body = {"model": MODEL, "prompt": ["hello", "world"], "n": 2, "temperature": 0, "max_tokens": 5}
    status, answer = await served.post("/v1/completions", body)
    assert status == 200
    texts = [choice["text"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]
    assert texts[0] == (await served.complete(max_tokens=5))["text"]
    assert texts[2] == (await served.complete(prompt="world", max_tokens=5))["text"]


async def test_the_stream_joins_to_the_whole_answer(served):
    fields = {"prompt": "hello", "max_tokens": 40, "temperature": 1, "seed": 4}
    whole = await served.complete(**fields)
    chunks = await served.openai.completions.create(
        model=MODEL, stream=True, stream_options={"include_usage": True}, **fields
    )
    pieces = [chunk async for chunk in chunks]
    assert "".join(chunk.choices[0].text for chunk in pieces[:-1]) == whole["text"]
    assert [chunk.choices[0].finish_reason for chunk in pieces[:-1]] == [
        *[None] * (len(pieces) - 2),
        whole["finish_reason"],
    ]
    assert pieces[-1].choices == []
    assert pieces[-1].usage.prompt_tokens == 2
    assert len({chunk.id for chunk in pieces}) == 1


async def test_usage_is_null_in_all_chunks_but_the_last_when_asked_for(served):
    events = await served.events(
        "/v1/completions", prompt="hello", stream_options={"include_usage": True}
    )
    *chunks, usage, done = events
    assert done == "[DONE]"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 0
    without = await served.events("/v1/completions", prompt="hello")
    assert all("usage" not in chunk for chunk in without[:-1])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_the_text_before_it_wherever_it_lies(served, stream):
    fields = {"prompt": "hello", "max_tokens": 60, "temperature": 1, "seed": 11}
    full = (await served.complete(**fields))["text"]
    for begin in range(3, len(full) - 6, 5):
        stop = full[begin : begin + 3]
        if stream:
            events = await served.events("/v1/completions", stop=[stop], **fields)
            choices = [event["choices"][0] for event in events[:-1]]
            text = "".join(choice["text"] for choice in choices)
            reason = choices[-1]["finish_reason"]
        else:
            choice = await served.complete(stop=stop, **fields)
            text, reason = choice["text"], choice["finish_reason"]
        assert text == full[: full.index(stop)]
        assert reason == "stop"
    await served.until(lambda: served.blocks_used == 0)


async def test_echo_begins_with_the_prompt_and_scores_it(served):
    prompt = served.text.encode("hello world")
    choice = await served.complete(prompt=prompt, echo=True, logprobs=2, max_tokens=3)
    assert choice["text"].startswith("hello world")
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"][0] is None
    assert "".join(logprobs["tokens"][: len(prompt)]) == "hello world"
    assert len(logprobs["tokens"]) == len(prompt) + 3
    for position in range(1, len(prompt)):
        logits = toy_logits_of(prompt[:position], 300).astype(float)
        expected = logits[prompt[position]] - float(_log_sum_exp(logits))
        assert logprobs["token_logprobs"][position] == pytest.approx(expected, abs=1e-4)
    offsets = logprobs["text_offset"][: len(prompt)]
    assert [choice["text"][a:b] for a, b in itertools.pairwise(offsets)] == (
        logprobs["tokens"][: len(prompt) - 1]
    )


async def test_logprobs_come_with_their_text_and_none_of_the_stop_string(served):
    fields = {"prompt": "hello", "max_tokens": 60, "temperature": 1, "seed": 11, "logprobs": 0}
    full = await served.complete(**fields)
    logprobs = full["logprobs"]
    assert len(logprobs["tokens"]) == 60 or full["finish_reason"] == "stop"
    stop = full["text"][10:14]
    cut = full["text"].index(stop)
    ends = await served.complete(stop=stop, **fields)
    kept = sum(offset < cut for offset in logprobs["text_offset"])
    assert ends["logprobs"] == {name: values[:kept] for name, values in logprobs.items()}
    events = await served.events("/v1/completions", stop=stop, **fields)
    streamed = [event["choices"][0] for event in events[:-1]]
    for name, values in ends["logprobs"].items():
        assert [value for choice in streamed for value in choice["logprobs"][name]] == values
    text = ""
    for choice in streamed:
        text += choice["text"]
        assert all(offset < len(text) for offset in choice["logprobs"]["text_offset"])


async def test_without_max_tokens_a_completion_near_the_limit_is_as_long_as_fits(served):
    choice = await served.complete(prompt=[1] * 120, ignore_eos=True, logprobs=0)
    assert len(choice["logprobs"]["tokens"]) == 8
    choice = await served.complete(prompt=[1] * 10, ignore_eos=True, logprobs=0)
    assert len(choice["logprobs"]["tokens"]) == 16


async def test_a_streamed_echo_joins_to_the_whole_one(served):
    fields = {"prompt": "hello world", "echo": True, "logprobs": 1, "max_tokens": 6}
    whole = await served.complete(**fields, seed=1, temperature=1)
    events = await served.events("/v1/completions", **fields, seed=1, temperature=1)
    choices = [event["choices"][0] for event in events[:-1]]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert [value for choice in choices for value in choice["logprobs"][name]] == values


async def test_max_tokens_zero_with_echo_only_scores_the_prompt(served):
    choice = await served.complete(echo=True, logprobs=0, max_tokens=0)
    assert choice["text"] == "hello"
    assert choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["tokens"]) == 2
    plain = await served.complete(echo=True, max_tokens=0)
    assert plain["text"] == "hello"
    assert plain["logprobs"] is None


async def test_ids_of_the_end_of_sequence_end_the_text_unless_ignored(served):
    prompt = served.text.encode("hello")
    tokens = greedy(prompt, 12)
    stop = tokens[5]
    cut = tokens.index(stop)
    choice = await served.complete(max_tokens=12, stop_token_ids=[stop])
    assert choice["finish_reason"] == "stop"
    expected = served.text.detokenizer(prompt, skip_special_tokens=True).feed(tokens[:cut])
    assert choice["text"] == expected
    end = served.text._tokenizer.token_to_id("<|im_end|>")
    forced = {"logit_bias": {str(end): 100}, "max_tokens": 5}
    assert (await served.complete(**forced))["finish_reason"] == "stop"
    assert (await served.complete(ignore_eos=True, **forced))["finish_reason"] == "length"
    assert (await served.complete(min_tokens=5, **forced))["finish_reason"] == "length"


async def test_no_replacement_character_leaks_when_a_character_spans_tokens(served):
    """The emoji's four bytes are four tokens: bias makes the model write them in turn."""
    emoji = list("😀".encode())
    whole = await served.complete(
        max_tokens=4, logit_bias={str(emoji[0]): 100}, presence_penalty=-2
    )
    assert whole["text"] == ""  # four first bytes are no character, and nothing is made up
    events = await served.events(
        "/v1/completions", prompt=served.text.encode("😀")[:3], max_tokens=30, seed=3
    )
    assert all(not e["choices"][0]["text"].endswith("\ufffd") for e in events[:-1])


def _log_sum_exp(logits):
    import numpy as np

    return np.log(np.exp(logits - logits.max()).sum()) + logits.max()
