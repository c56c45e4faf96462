"""Playing a graph in pieces: attention is launched by itself, all between as a graph each.

Full graphs save most (benchmarks/graph_modes.py compares them). Pieces are for a driver, a profiler
or a new attention kernel that does not get along with a captured one. Both play the same images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import msgspec

from warmgraph_engine.backends.base import DriverTimes, GraphImage, ImageError
from warmgraph_engine.backends.cuda import document
from warmgraph_engine.backends.cuda.player import CudaGraph, CudaLaunches, CudaPlayer


class PiecewisePlayer:
    """Loads images as pieces."""

    def __init__(self, player: CudaPlayer) -> None:
        self._player = player

    def load(self, image: GraphImage) -> PiecewiseGraph:
        """Raises ImageError, as CudaPlayer.load."""
        return PiecewiseGraph(
            [
                self._player.load(piece) if captured else self._player.prepare(piece)
                for captured, piece in split(image)
            ]
        )


class PiecewiseGraph:
    """One bucket's pieces, in the order of the step."""

    def __init__(self, pieces: Sequence[CudaGraph | CudaLaunches]) -> None:
        self._pieces = pieces
        graphs = [piece for piece in pieces if isinstance(piece, CudaGraph)]
        self.bytes = sum(graph.bytes for graph in graphs)
        self.driver_times = DriverTimes(
            instantiate=sum(graph.driver_times.instantiate for graph in graphs),
            upload=sum(graph.driver_times.upload for graph in graphs),
        )

    def replay(self) -> None:
        self._pieces[0].hand_over(self._enqueue)

    def _enqueue(self, stream: Any) -> None:
        for piece in self._pieces:
            piece.enqueue(stream)


def split(image: GraphImage) -> list[tuple[bool, GraphImage]]:
    """(whether it is to be a graph, a step's part), alternating. Raises ImageError."""
    try:
        recorded = document.decode(image.document)
        attends = [_attends(recorded.kernels[node.kernel]) for node in recorded.nodes]
    except (msgspec.MsgspecError, IndexError) as error:
        raise ImageError(f"is damaged: {error}") from error
    pieces = groupby(range(len(attends)), key=attends.__getitem__)
    return [
        (not attention, _part(image, recorded, [recorded.nodes[i] for i in numbers]))
        for attention, numbers in pieces
    ]


def _attends(kernel: document.Kernel) -> bool:
    return "attention" in kernel.name


def _part(
    image: GraphImage, recorded: document.Document, nodes: Sequence[document.Node]
) -> GraphImage:
    # Across a border nothing overlaps: a kernel may use, before it waits for the one in front of
    # it, what those before that have left, which only a chain within one piece ensures.
    first = msgspec.structs.replace(nodes[0], overlaps=False)
    part = msgspec.structs.replace(recorded, nodes=[first, *nodes[1:]])
    return replace(image, document=document.encode(part))
