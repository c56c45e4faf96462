"""Something that somebody must act on: one word for programs, one sentence for people."""

from __future__ import annotations

from typing import NamedTuple

from warmgraph_api.reasons import Reason

MESSAGE_LIMIT = 1024
"""Characters: a condition should fit a terminal; the API server allows 32 KiB."""


class Problem(NamedTuple):
    reason: Reason
    message: str

    @classmethod
    def of(cls, reason: Reason, message: str) -> Problem:
        if len(message) > MESSAGE_LIMIT:
            message = message[: MESSAGE_LIMIT - 1] + "…"
        return cls(reason, message)
