"""The real tokenizer and template, against transformers."""

from __future__ import annotations

import pytest

from warmgraph_engine.tokenizer.text import TextModel

pytestmark = pytest.mark.model

CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi 👋\n\n"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": " b "},
        {"role": "user", "content": "<|im_end|> ünï 日本語"},
    ],
]
TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces\n\n\ttab",
    "日本語 👩‍👩‍👧‍👦 ünï",
    "<|im_start|>x<|im_end|>",
    "a" * 300,
]


@pytest.fixture(scope="module")
def text(smollm2):
    return TextModel.load(smollm2, vocabulary=49152)


@pytest.fixture(scope="module")
def reference(smollm2):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2)


@pytest.mark.parametrize("messages", CHATS)
def test_chats_become_the_same_tokens(text, reference, messages):
    expected = reference.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert text.encode_chat(messages) == list(expected)


@pytest.mark.parametrize("content", TEXTS)
def test_texts_become_the_same_tokens_and_stream_back(text, reference, content):
    tokens = text.encode(content)
    assert tokens == reference(content)["input_ids"]
    detokenizer = text.detokenizer([], skip_special_tokens=False)
    assert "".join(detokenizer.feed([token]) for token in tokens) == content
    assert b"".join(map(text.token_bytes, tokens)).decode() == content


def test_the_end_of_a_turn_ends_an_output(text):
    assert text.eos_token_ids == {text._tokenizer.token_to_id("<|im_end|>")}
