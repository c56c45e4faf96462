from __future__ import annotations

from tests.engine.server.serving import MODEL, greedy

QUESTION = [{"role": "user", "content": "hello"}]
RENDERED = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


async def test_messages_are_rendered_by_the_models_template(served):
    answer = await served.openai.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=6
    )
    prompt = served.text.encode(RENDERED)
    expected = served.text.detokenizer(prompt, skip_special_tokens=True).feed(greedy(prompt, 6))
    assert answer.choices[0].message.content == expected
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.prompt_tokens == len(prompt)


async def test_the_stream_begins_with_the_role_and_ends_with_the_reason(served):
    fields = {"messages": QUESTION, "temperature": 1, "seed": 5, "max_completion_tokens": 12}
    whole = await served.openai.chat.completions.create(model=MODEL, **fields)
    events = await served.events(
        "/v1/chat/completions", stream_options={"include_usage": True}, **fields
    )
    first, *middle, last, usage, done = events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["finish_reason"] == whole.choices[0].finish_reason
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in [*middle, last])
    assert text == whole.choices[0].message.content
    assert all(e["object"] == "chat.completion.chunk" for e in events[:-1])
    assert usage["choices"] == []
    assert usage["usage"] == whole.usage.model_dump(exclude_none=True)
    assert done == "[DONE]"


async def test_n_choices_differ_and_repeat_with_the_seed(served):
    async def ask():
        answer = await served.openai.chat.completions.create(
            model=MODEL, messages=QUESTION, n=3, seed=9, max_tokens=20
        )
        return [choice.message.content for choice in answer.choices]

    texts = await ask()
    assert len(set(texts)) == 3
    assert await ask() == texts


async def test_n_choices_stream_side_by_side(served):
    fields = {"messages": QUESTION, "n": 3, "seed": 9, "max_tokens": 20}
    whole = await served.openai.chat.completions.create(model=MODEL, **fields)
    texts = ["", "", ""]
    reasons = {}
    stream = await served.openai.chat.completions.create(model=MODEL, stream=True, **fields)
    async for chunk in stream:
        [choice] = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        if choice.finish_reason:
            reasons[choice.index] = choice.finish_reason
    assert texts == [choice.message.content for choice in whole.choices]
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}


async def test_logprobs_name_tokens_and_alternatives_in_both_forms(served):
    fields = {"messages": QUESTION, "temperature": 0, "max_tokens": 5, "logprobs": True}
    answer = await served.openai.chat.completions.create(model=MODEL, top_logprobs=2, **fields)
    content = answer.choices[0].logprobs.content
    assert len(content) == 5
    for token in content:
        assert token.bytes is not None
        assert [token.top_logprobs[0].token, token.top_logprobs[0].logprob] == [
            token.token,
            token.logprob,
        ]
        assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
    events = await served.events("/v1/chat/completions", top_logprobs=2, **fields)
    streamed = [
        token["logprob"]
        for event in events[:-1]
        for token in (event["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert streamed == [token.logprob for token in content]


async def test_parts_of_text_are_joined_and_a_developer_is_a_system(served):
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    fields = {"model": MODEL, "temperature": 0}
    as_parts = await served.openai.chat.completions.create(
        messages=[{"role": "user", "content": parts}], **fields
    )
    as_text = await served.openai.chat.completions.create(messages=QUESTION, **fields)
    assert as_parts.choices == as_text.choices
    status, tokens = await served.post(
        "/tokenize", {"messages": [{"role": "developer", "content": "x"}]}
    )
    assert status == 200
    _, same = await served.post("/tokenize", {"messages": [{"role": "system", "content": "x"}]})
    assert tokens == same
