"""Drafts are what followed the newest tokens the last time, found without reading it all again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgraph_engine.scheduler.ngram import LONGEST, SHORTEST, NgramIndex


def draft(tokens: list[int], most: int = 4) -> list[int]:
    return NgramIndex().draft(tokens, most)


def test_what_followed_the_same_tokens_is_drafted():
    assert draft([1, 2, 3, 4, 5, 6, 7, 1, 2, 3]) == [4, 5, 6, 7]
    assert draft([1, 2, 3, 4, 5, 6, 7, 1, 2, 3], most=2) == [4, 5]


def test_a_text_without_repetition_drafts_nothing():
    assert draft([1, 2, 3, 4, 5]) == []


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 1], [1, 2, 1]])
def test_a_text_too_short_to_repeat_drafts_nothing(tokens):
    assert draft(tokens) == []


def test_a_single_token_that_occurred_before_is_not_enough():
    assert SHORTEST == 2
    assert draft([1, 2, 3, 9, 1]) == []


def test_the_longest_match_wins_over_a_later_shorter_one():
    assert LONGEST == 3
    assert draft([1, 2, 3, 4, 9, 2, 3, 5, 8, 1, 2, 3], most=1) == [4]


def test_of_equal_matches_the_latest_counts():
    assert draft([1, 2, 3, 1, 2, 4, 1, 2], most=1) == [4]


def test_a_short_period_is_drafted_beyond_the_end_of_the_text():
    assert draft([7, 1, 2, 1, 2, 1, 2], most=5) == [1, 2, 1, 2, 1]
    assert draft([5, 5, 5], most=3) == [5, 5, 5]


def test_no_more_is_drafted_than_asked_for():
    assert draft([5, 5, 5], most=0) == []


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(0, 9),
    st.sets(st.integers(0, 60)),
    st.sets(st.integers(0, 60)),
)
def test_a_growing_text_drafts_as_if_it_were_read_anew(tokens, most, drafted, noted):
    """Whenever it is asked, and whatever was noted ahead of that."""
    index = NgramIndex()
    for length in range(len(tokens) + 1):
        if length in noted:
            index.note(tokens, length)
        if length in drafted:
            assert index.draft(tokens[:length], most) == searched(tokens[:length], most)


def searched(tokens: list[int], most: int) -> list[int]:
    """The definition: look through the whole text, longest first, from its end."""
    for length in range(LONGEST, SHORTEST - 1, -1):
        if length < len(tokens):
            for start in range(len(tokens) - length - 1, -1, -1):
                if tokens[start : start + length] == tokens[-length:]:
                    drafts: list[int] = []
                    for position in range(start + length, start + length + most):
                        drafts.append([*tokens, *drafts][position])
                    return drafts
    return []


def test_a_draft_reads_only_the_tokens_that_are_new():
    reads = 0

    class Counted(list):
        def __getitem__(self, key):
            nonlocal reads
            found = super().__getitem__(key)
            reads += len(found) if isinstance(key, slice) else 1
            return found

    index, tokens = NgramIndex(), Counted(number % 50 for number in range(5000))
    index.draft(tokens, 4)
    reads = 0
    for number in range(100):
        tokens.append(number % 50)
        index.draft(tokens, 4)
    assert reads < 100 * 20
