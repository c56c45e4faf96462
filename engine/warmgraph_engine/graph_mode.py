"""How graphs are played, where a device has the choice."""

from __future__ import annotations

from enum import StrEnum


class GraphMode(StrEnum):
    """Of no concern to what is recorded and stored: both play the same images."""

    FULL = "Full"
    PIECEWISE = "Piecewise"
    """In pieces, between which attention is launched by itself."""
