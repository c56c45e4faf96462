"""A step's logits where the device keeps them, and copies of single rows on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda.driver import CudaError, Device, check
from warmgraph_engine.backends.cuda.memory import PinnedMemory
from warmgraph_engine.backends.cuda.peers import Attendance
from warmgraph_engine.backends.cuda.turns import Drawn
from warmgraph_engine.sampling.device import SlotScores
from warmgraph_engine.sampling.params import MAX_TOP_LOGPROBS
from warmgraph_engine.step import StepError


class LogitRows:
    """Copies rows of the logits, float32 of shape (rows, vocabulary), to the host."""

    def __init__(
        self, device: Device, address: int, shape: tuple[int, int], attendance: Attendance
    ) -> None:
        """`shape` is that of the pinned memory they come through: rows at once, vocabulary."""
        self._device, self._address, self._attendance = device, address, attendance
        self._bytes = 4 * shape[1]
        self._memory = PinnedMemory(device, shape[0] * self._bytes)
        self._pinned: NDArray[Any] = self._memory.array(shape, "float32")

    def copy(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Wait for all steps handed over, then give these rows; valid until the next copy."""
        self._device.use()
        at_once = len(self._pinned)
        if len(rows) <= at_once:
            return self._copied(rows)
        # Log-probabilities of a prompt: more rows than sequences.
        parts = (rows[first : first + at_once] for first in range(0, len(rows), at_once))
        result = np.empty((len(rows), self._pinned.shape[1]), np.float32)
        for number, part in enumerate(parts):
            result[number * at_once :][: len(part)] = self._copied(part)
        return result

    def _copied(self, rows: Sequence[int]) -> NDArray[np.float32]:
        for place, row in enumerate(rows):
            check(
                cuda.cuMemcpyDtoHAsync(
                    self._memory.address + place * self._bytes,
                    self._address + row * self._bytes,
                    self._bytes,
                    self._device.stream,
                )
            )
        self._device.synchronize()
        self._attendance.check()
        return self._pinned[: len(rows)]


class DeviceLogits:
    """StepResult.logits of a step: what sampling/device.py asks for. Raises StepError."""

    def __init__(self, rows: LogitRows, drawn: Drawn) -> None:
        self._rows, self._drawn = rows, drawn

    def drawn(self) -> Sequence[int]:
        """Wait for the step; by slot, -1 where logits hold NaN or infinity."""
        with _step_errors():
            return self._drawn.read()

    def scores(self, slot: int, alternatives: int) -> SlotScores:
        """Wait for the step; see StepLogits."""
        with _step_errors():
            logit, largest, mass, *best = self._drawn.scores()[slot].tolist()
        tokens, logits = best[:alternatives], best[MAX_TOP_LOGPROBS:][:alternatives]
        return SlotScores(logit, largest, mass, list(zip(map(int, tokens), logits, strict=True)))

    def on_host(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Wait for the step; valid until the next call."""
        with _step_errors():
            return self._rows.copy(rows)


@contextmanager
def _step_errors() -> Iterator[None]:
    try:
        yield
    except CudaError as error:
        raise StepError(f"the GPU failed: {error}") from error
