"""What retention is told: how much to keep, and for whom."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_USER = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,119})@([A-Za-z0-9][A-Za-z0-9._-]{0,119})")
"""Fits a file name of 255 bytes, and can name no other folder."""


class User(NamedTuple):
    """One revision of one deployment."""

    owner: str
    """NAMESPACE.NAME of the deployment, or a name of one's own."""
    revision: str

    def __str__(self) -> str:
        return f"{self.owner}@{self.revision}"

    @classmethod
    def parse(cls, text: str) -> User:
        """Raises ValueError."""
        match = _USER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not OWNER@REVISION of letters, digits, '.', '_', '-'")
        return cls(match[1], match[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    revisions: int = 3
    """Earlier revisions of a deployment, beside its newest, whose entries are kept."""
    max_bytes: int = 1 << 30
    """Of all entries together. Beyond it unused entries go, the least recently used first; those
    of a deployment's newest revision come last."""
