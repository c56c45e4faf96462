"""Drafts by prompt lookup: what followed the last time that the newest tokens stood in the text.

It needs no second model and no memory of the device, and pays where an output repeats its prompt
or itself: summaries, edits, code, quotations, lists.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 3
"""Tokens of the longest n-gram looked up. Each length costs an entry for every token, and of three
tokens that came together before few were followed by different ones."""

SHORTEST = 2
"""Tokens of the shortest. Over six kinds of answers of SmolLM2, drafts of 4 tokens saved a fifth of
the steps. Single tokens have nearly all occurred before: looking for them as well saved half as
many steps again, with 80 % more verify steps. That pays only while one of those costs less than one
and a half decode steps, which is about what it costs on a CPU."""


class NgramIndex:
    """Where the n-grams of one text were seen last, kept up to date token by token: a draft in a
    long text costs no more than in a short one. Takes at most some 200 bytes for each token."""

    __slots__ = ("_followed_at", "_indexed")

    def __init__(self) -> None:
        self._followed_at: dict[tuple[int, ...], int] = {}
        """By n-gram: the position of what followed it."""
        self._indexed = 0
        """Positions that n-grams before them have been noted for."""

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may follow; none if no n-gram at the end was seen before.

        `tokens` must begin with those of the call before.
        """
        self.note(tokens, len(tokens))
        for length in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            start = self._followed_at.get(tuple(tokens[-length:]))
            if start is not None:
                return _continuation(tokens, start, most)
        return []

    def note(self, tokens: Sequence[int], end: int) -> None:
        """Take in the tokens before position `end`."""
        # Nothing follows the n-grams at the very end yet, so that a lookup never finds itself.
        for position in range(self._indexed, end):
            for length in range(SHORTEST, min(LONGEST, position) + 1):
                self._followed_at[tuple(tokens[position - length : position])] = position
        self._indexed = max(self._indexed, end)


def _continuation(tokens: Sequence[int], start: int, most: int) -> list[int]:
    """Tokens from `start` on. Where they reach the end they go on with themselves: text that
    repeats with a short period is drafted as far as any other."""
    drafts = list(tokens[start : start + most])
    for position in range(most - len(drafts)):
        drafts.append(drafts[position])
    return drafts
