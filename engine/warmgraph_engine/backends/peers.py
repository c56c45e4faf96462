"""What a backend is given to find those of the other ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Peers(Protocol):
    @property
    def folder(self) -> Path:
        """Private, empty, and the same for all ranks."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """How long a rank may keep the others waiting while they find each other."""
        ...

    def exchange(self, descriptor: int) -> list[int]:
        """Give every rank a file descriptor, and get theirs, by rank, as descriptors of this
        process. All ranks do it at the same time. Raises RuntimeError if one does not."""
        ...
