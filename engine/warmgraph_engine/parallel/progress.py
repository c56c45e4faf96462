"""How far each rank is: a page of memory that they write and rank 0 reads.

A step is not answered, since a message for each would wake rank 0's threads a thousand times a
second; who wants to know, when a scrape asks or something takes long, looks here.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

import numpy as np

from warmgraph_api.report import StepKind

_KINDS = tuple(StepKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rank is."""

    begun: int
    """Iteration of the last step that it took up; 0 before the first."""
    done: int
    """Iteration of the last step that it finished, on a GPU: handed over to it."""
    kind: StepKind
    bucket: int
    graph: int
    """Of the step begun last; 0 is eager execution."""


class Progress:
    """One row a rank; a row has one writer, and each number is written at once."""

    def __init__(self, descriptor: int, ranks: int) -> None:
        """Of create(), here or in another process."""
        self.descriptor = descriptor
        memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        self._rows = np.ndarray((ranks, 5), np.int64, memory)

    @classmethod
    def create(cls, ranks: int) -> Progress:
        descriptor = os.memfd_create("warmgraph-ranks")
        os.truncate(descriptor, mmap.PAGESIZE)
        return cls(descriptor, ranks)

    def begin(self, rank: int, iteration: int, kind: StepKind, bucket: int, graph: int) -> None:
        self._rows[rank, 2:] = _KINDS.index(kind), bucket, graph
        self._rows[rank, 0] = iteration

    def finish(self, rank: int, iteration: int) -> None:
        self._rows[rank, 1] = iteration

    def of(self, rank: int) -> Place:
        begun, done, kind, bucket, graph = self._rows[rank].tolist()
        return Place(begun=begun, done=done, kind=_KINDS[kind], bucket=bucket, graph=graph)
