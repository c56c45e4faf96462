from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.texts import byte_level_tokenizer, sentencepiece_tokenizer
from warmgraph_engine.tokenizer.text import TextModel

BYTE_LEVEL = TextModel(byte_level_tokenizer(), vocabulary=300)
SENTENCEPIECE = TextModel(sentencepiece_tokenizer(), vocabulary=300)
BOTH = pytest.mark.parametrize("text", [BYTE_LEVEL, SENTENCEPIECE], ids=["byte level", "pieces"])
FAMILY = "👩‍👩‍👧‍👦"


def stream(text, tokens, prompt=()):
    detokenizer = text.detokenizer(list(prompt), skip_special_tokens=True)
    return [detokenizer.feed([token]) for token in tokens]


@BOTH
@pytest.mark.parametrize(
    "content", ["hello world", f"a {FAMILY} b", "日本語 ünï", " hello", "a  b"]
)
def test_the_pieces_join_to_the_text_and_hold_no_half_characters(text, content):
    pieces = stream(text, text.encode(content))
    assert "".join(pieces) == text.decode(text.encode(content)) == content
    assert not any("\ufffd" in piece for piece in pieces)


@BOTH
@given(content=st.text(st.characters(codec="utf-8", exclude_characters="\ufffd▁"), max_size=30))
@settings(deadline=None)
def test_any_text_comes_through_in_any_grouping_of_its_tokens(text, content):
    tokens = text.encode(content)
    expected = text.decode(tokens)
    assert "".join(stream(text, tokens)) == expected.rstrip("\ufffd")
    for size in (2, 3, len(tokens) or 1):
        detokenizer = text.detokenizer([], skip_special_tokens=True)
        groups = [tokens[i : i + size] for i in range(0, len(tokens), size)]
        assert "".join(map(detokenizer.feed, groups)) == expected


@BOTH
@given(tokens=st.lists(st.integers(0, 262), max_size=40))
@settings(deadline=None)
def test_tokens_that_are_no_text_never_break_it(text, tokens):
    for piece in stream(text, tokens):
        assert not piece.endswith("\ufffd")


@given(tokens=st.lists(st.integers(0, 262), max_size=60), cut=st.integers(0, 60))
@settings(deadline=None)
def test_what_is_settled_is_the_beginning_of_the_final_text(tokens, cut):
    settled = "".join(stream(BYTE_LEVEL, tokens[:cut]))
    assert BYTE_LEVEL.decode(tokens).startswith(settled)


def test_a_character_is_held_back_until_its_last_byte():
    assert stream(BYTE_LEVEL, list("😀".encode())) == ["", "", "", "😀"]
    four = [SENTENCEPIECE._tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "😀".encode()]
    assert stream(SENTENCEPIECE, four) == ["", "", "", "😀"]


def test_a_replacement_character_that_the_model_writes_itself_is_kept():
    tokens = BYTE_LEVEL.encode("a\ufffdb")
    assert "".join(stream(BYTE_LEVEL, tokens)) == "a\ufffdb"


def test_a_leading_space_depends_on_what_comes_before():
    [hello] = SENTENCEPIECE.encode("hello")
    assert stream(SENTENCEPIECE, [hello, hello]) == ["hello", " hello"]
    assert stream(SENTENCEPIECE, [hello], prompt=[hello]) == [" hello"]


def test_special_tokens_in_between_do_not_swallow_a_space():
    [hello] = SENTENCEPIECE.encode("hello")
    end = SENTENCEPIECE._tokenizer.token_to_id("</s>")
    assert stream(SENTENCEPIECE, [hello, end, end, hello]) == ["hello", "", "", " hello"]
    assert stream(SENTENCEPIECE, [hello], prompt=[hello, end, end]) == [" hello"]


def test_special_tokens_show_when_asked_for():
    end = BYTE_LEVEL._tokenizer.token_to_id("<|im_end|>")
    detokenizer = BYTE_LEVEL.detokenizer([], skip_special_tokens=False)
    assert detokenizer.feed([end]) == "<|im_end|>"
    assert stream(BYTE_LEVEL, [end]) == [""]


def test_a_character_begun_in_the_prompt_is_finished_in_the_output():
    *begun, last = "é".encode()
    assert stream(BYTE_LEVEL, [last, ord("t")], prompt=begun) == ["é", "t"]


def test_an_id_that_no_token_has_is_no_text():
    assert stream(BYTE_LEVEL, [299, ord("a")]) == ["", "a"]


def test_a_long_output_does_not_get_slower():
    decoded = []

    def counting(ids):
        decoded.append(len(ids))
        return BYTE_LEVEL.decode(ids)

    from warmgraph_engine.tokenizer.detokenizer import Detokenizer

    detokenizer = Detokenizer(counting, [])
    for _ in range(500):
        detokenizer.feed([ord("a")])
    assert max(decoded) <= 3
