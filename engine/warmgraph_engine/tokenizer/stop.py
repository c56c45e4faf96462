"""Stop strings: end an output before one of them, wherever it lies across tokens, and let no part
of it into the stream."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Watches one output's text as it grows."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None
        """The stop string that was found."""

    def feed(self, text: str) -> str:
        """The part of the text so far that is surely before any stop string."""
        if not self._stops:
            return text
        pending = self._held + text
        found = [(at, stop) for stop in self._stops if (at := pending.find(stop)) >= 0]
        if found:
            # The earliest; of two that start together the one given first, as both end the text.
            end, self.matched = min(found, key=lambda match: match[0])
            self._held = ""
            return pending[:end]
        held = self._longest_beginning(pending)
        self._held = pending[len(pending) - held :]
        return pending[: len(pending) - held]

    def flush(self) -> str:
        """What is held back, once the output has ended without a stop string."""
        held, self._held = self._held, ""
        return held

    def _longest_beginning(self, text: str) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = min(len(text), max(len(stop) for stop in self._stops) - 1)
        for length in range(longest, 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
