from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgraph_engine.tokenizer.stop import StopStrings


def run(stops, pieces):
    """(text that came out, stop that was found)"""
    watcher = StopStrings(stops)
    text = ""
    for piece in pieces:
        text += watcher.feed(piece)
        if watcher.matched is not None:
            return text, watcher.matched
    return text + watcher.flush(), None


@pytest.mark.parametrize(
    ("stops", "pieces", "text", "matched"),
    [
        (["END"], ["one END two"], "one ", "END"),
        (["END"], ["one E", "N", "D two"], "one ", "END"),
        (["END"], ["one EN", "tail"], "one ENtail", None),
        (["END"], ["one EN"], "one EN", None),
        (["\n\n"], ["a\n", "b\n", "\nc"], "a\nb", "\n\n"),
        (["aab"], ["aaa", "b"], "a", "aab"),
        (["b", "abc"], ["ab"], "a", "b"),
        (["bc", "abcd"], ["abc", "d"], "a", "bc"),
        (["x", "a"], ["za", "x"], "z", "a"),
        ([], ["any", "thing"], "anything", None),
    ],
)
def test_text_ends_before_the_first_stop_string(stops, pieces, text, matched):
    assert run(stops, pieces) == (text, matched)


def test_nothing_of_a_stop_string_is_let_out_before_it_is_sure():
    watcher = StopStrings(["STOP"])
    assert [watcher.feed(piece) for piece in ["a S", "TO", "x", "ST"]] == ["a ", "", "STOx", ""]
    assert watcher.flush() == "ST"
    assert watcher.flush() == ""


ALPHABET = st.text("ab\n", max_size=12)


@given(
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
    pieces=st.lists(ALPHABET, max_size=6),
)
def test_pieces_give_what_the_whole_text_gives(stops, pieces):
    whole = "".join(pieces)
    places = [at for stop in stops if (at := whole.find(stop)) >= 0]
    text, matched = run(stops, pieces)
    assert (matched is not None) == bool(places)
    if matched is None:
        assert text == whole
    else:
        # The stop string that was complete first ends the text; one that began earlier but was
        # completed later never got there.
        assert whole.startswith(text + matched)
        assert not any(stop in text for stop in stops)
