"""A CUDA backend whose memory is looked at: poison before a step, and what the step left behind.

For a GPU and for the interpreted one of gpu.py alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_api.report import StepKind
from warmgraph_engine.backends.base import Graph
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.backends.cuda.driver import check
from warmgraph_engine.shapes import StepShape, bucket_shape, shape_of
from warmgraph_engine.step import Step, StepDraw

SENTINEL = 0xFF
"""The byte that outputs and free memory are full of before a step: as floating point, NaN."""

WRONG = 3
"""What the static buffers say beyond the valid part of a step: a token, a position or a length that
exist, so that whoever uses it goes wrong without leaving the memory there is."""

_LEFT_ALONE = ("work.arrived", "buffers.set")
"""Counters that are zero between steps, and the number of the set of inputs."""


@dataclass(frozen=True)
class Left:
    """What a step left in memory."""

    logits: NDArray[np.float32]
    """Of the step's rows."""
    drawn: dict[int, int]
    """By slot, the tokens that it drew."""


class Probe:
    """Runs steps one at a time."""

    def __init__(self, backend: CudaBackend) -> None:
        self.backend = backend
        self.limits = backend.limits
        self.spare_block = backend.limits.blocks
        """The last KV block: no step may use it, and wrong block tables point at it."""

    def capture(self, kind: StepKind, size: int, *, drafts: int = 0) -> tuple[Graph, StepShape]:
        shape = bucket_shape(
            kind, size, max_batch_size=self.limits.max_batch_size, speculative_tokens=drafts
        )
        return self.backend.player.load(self.backend.recorder.record(size, shape)), shape

    # --- memory ------------------------------------------------------------------------------

    def read_kv(self) -> dict[str, NDArray[np.uint8]]:
        """Of each layer's keys and values, the bytes of every block: (blocks, bytes)."""
        found = {}
        for region in self.backend.layout:
            if region.group == "kv":
                content = np.empty(region.bytes, np.uint8)
                address = self.backend._addresses[region.name]
                self._copy(cuda.cuMemcpyDtoHAsync, content.ctypes.data, address, region.bytes)
                found[region.name] = content.reshape(region.shape[0], -1)
        return found

    def write_kv(self, kv: Mapping[str, NDArray[np.uint8]]) -> None:
        for name, content in kv.items():
            address = self.backend._addresses[name]
            self._copy(cuda.cuMemcpyHtoDAsync, address, content.ctypes.data, content.nbytes)

    def poison_kv(self) -> None:
        """Every block, the dummy that padding points at included; before the next step begins."""
        for region in self.backend.layout:
            if region.group == "kv":
                self._fill(region.name, region.bytes)

    def poison_buffers(self) -> None:
        """All that a step may write before it reads: outputs, intermediates, static buffers, and
        the pinned memory of both turns. Before the next step begins."""
        backend = self.backend
        backend._device.synchronize()
        for region in backend.layout:
            if region.name in _LEFT_ALONE:
                continue
            outputs = ("buffers.logits", "buffers.last_drawn")
            if region.group in ("work", "slots") or region.name in outputs:
                self._fill(region.name, region.bytes)
            elif region.group == "buffers":
                wrong = np.full(region.shape, self._wrong(region.name), region.dtype)
                address = backend._addresses[region.name]
                self._copy(cuda.cuMemcpyHtoDAsync, address, wrong.ctypes.data, wrong.nbytes)
        for arrays in backend.buffers._sets:
            for name, array in arrays.items():
                if name != "set":
                    array[...] = self._wrong(name)
        for results in backend._turns._results:
            results.drawn.view(np.uint8)[...] = SENTINEL
            results.scores.view(np.uint8)[...] = SENTINEL

    def _wrong(self, name: str) -> int:
        block_size = self.limits.block_size
        place = {"block_tables": self.spare_block, "slots": self.spare_block * block_size}
        return place.get(name.removeprefix("buffers."), WRONG)

    def _fill(self, name: str, size: int) -> None:
        address = self.backend._addresses[name]
        check(cuda.cuMemsetD8Async(address, SENTINEL, size, self.backend._device.stream))

    def _copy(self, call: Any, to: int, source: int, size: int) -> None:
        check(call(to, source, size, self.backend._device.stream))
        self.backend._device.synchronize()

    # --- steps -------------------------------------------------------------------------------

    def run(self, step: Step) -> None:
        """Eagerly, for the keys and values that it writes."""
        shape = shape_of(step)
        self.backend.buffers.fill(step, shape)
        self.backend.run_eagerly(shape)

    def eager(self, step: Step) -> Left:
        """Over poisoned buffers."""
        shape = shape_of(step)
        self.poison_buffers()
        self.backend.buffers.fill(step, shape)
        self.backend.run_eagerly(shape)
        return self._left(step, shape)

    def replay(self, graph: Graph, step: Step, shape: StepShape) -> Left:
        """Over poisoned buffers, and with padding that computes nonsense: other tokens at other
        places, which see NaN."""
        self.poison_buffers()
        self.backend.buffers.fill(step, shape)
        used, arrays = shape_of(step), self.backend.buffers.arrays
        arrays["input_ids"][used.tokens : shape.tokens] = self.limits.vocabulary - 1
        arrays["positions"][used.tokens : shape.tokens] = WRONG
        arrays["block_tables"][used.sequences : shape.sequences] = self.spare_block
        graph.replay()
        return self._left(step, shape)

    def _left(self, step: Step, shape: StepShape) -> Left:
        """Also asserts that nothing was written beside the step's and its padding's outputs."""
        rows = shape_of(step).logit_rows
        most = self.backend.layout["buffers.logits"].shape[0]
        logits = self.backend.logits(most).copy()
        assert np.isfinite(logits[:rows]).all(), "a row of the step was not written, or is NaN"
        beyond = logits[shape.logit_rows :].view(np.uint8)
        assert (beyond == SENTINEL).all(), "logits were written that the shape does not have"
        drawn = np.array(self.backend.drawn(), np.int32)
        slots = [row.slot for row in step.rows if row.draw is not None]
        others = np.delete(drawn, slots).view(np.uint8)
        assert (others == SENTINEL).all(), "a token was drawn for a slot that has none"
        scores = np.array(self.backend._turns.last.scores()).view(np.uint8)
        assert (scores == SENTINEL).all(), "a token was scored that nobody asked for"
        return Left(logits[:rows], {slot: int(drawn[slot]) for slot in slots})


def drawing(step: Step) -> Step:
    """The step with every row that has logits drawing its likeliest token, in a slot of its own."""
    rows = [
        msgspec.structs.replace(row, slot=slot, draw=StepDraw() if row.logit_rows else None)
        for slot, row in enumerate(step.rows)
    ]
    return Step(kind=step.kind, rows=rows)
