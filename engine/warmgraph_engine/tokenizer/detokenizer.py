"""Text of a growing list of tokens, piece by piece.

Decoding token by token would be wrong twice: a character's bytes may be spread over several tokens
(an emoji comes as two to four), and a token's text may depend on its predecessor (a leading space
is dropped at the start of a text). So a window of recent tokens is decoded as a whole: the ones
before `_fresh` are settled, and what ends in an unfinished character is held back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""What decoders write for bytes that are not (yet) a character."""

CONTEXT_TOKENS = 6
"""Tokens of the prompt that the window starts with: one is enough for a leading space, but
special tokens decode to nothing, and chat templates put a few of them in a row."""

Decode = Callable[[Sequence[int]], str]


class Detokenizer:
    """One output's text. `decode` must skip or show special tokens as the request wants."""

    def __init__(self, decode: Decode, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._window = list(prompt[-CONTEXT_TOKENS:])
        self._fresh = len(self._window)
        """Index in the window of the first token whose text is not all out."""
        self._sent = len(decode(self._window).rstrip(REPLACEMENT))
        """Characters of the window's text that are out, or belong to the prompt."""

    def feed(self, tokens: Sequence[int]) -> str:
        """The text that these tokens settle: it never changes with later tokens."""
        self._window += tokens
        text = self._decode(self._window)
        settled = text.rstrip(REPLACEMENT)
        piece = settled[self._sent :]
        if len(settled) == len(text):
            self._slide(len(text))
        else:
            self._sent = max(self._sent, len(settled))
        return piece

    def _slide(self, length: int) -> None:
        """Everything is out: start the window with the newest token, or else with the newest
        tokens, if that shows a text of its own that the next token can follow."""
        for start in (len(self._window) - 1, self._fresh):  # one token's text is known already
            newest = self._window[start:]
            context = self._decode(newest)
            if context and not context.endswith(REPLACEMENT):
                self._window = newest
                length = len(context)
                break
        self._fresh = len(self._window)
        self._sent = length
