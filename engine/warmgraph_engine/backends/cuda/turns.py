"""Whose turn it is: the two sets of pinned buffers that steps take in turns.

The host writes a step into one set while the device may still have to read the step before from
the other. A set is written again only when the step that lay in it is over, and its tokens are
kept by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda.driver import Device, check
from warmgraph_engine.backends.cuda.peers import Attendance


class Drawn:
    """The tokens that one step draws, by slot; -1 where the logits hold NaN or infinity."""

    def __init__(self, event: Any, tokens: NDArray[Any], attendance: Attendance) -> None:
        """`tokens` is where the step leaves them before the event."""
        self._event, self._tokens, self._attendance = event, tokens, attendance
        self._read: list[int] | None = None

    def read(self) -> Sequence[int]:
        """Wait for the step. Raises CudaError if it, or one before it, failed."""
        if self._read is None:
            check(cuda.cuEventSynchronize(self._event))
            self._attendance.check()
            self._read = self._tokens.tolist()
        return self._read


class Turns:
    """Used by one thread at a time, as the backend is."""

    def __init__(
        self, device: Device, drawn: NDArray[Any], attendance: Attendance | None = None
    ) -> None:
        """`drawn` is (sets, slots)."""
        self._device, self._results = device, drawn
        self._attendance = attendance or Attendance()
        flag = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
        self._events = [check(cuda.cuEventCreate(flag)) for _ in drawn]
        self._steps: list[Drawn | None] = [None] * len(drawn)
        self.current = 0
        """The set that the next step is written to and read from."""

    @property
    def last(self) -> Drawn:
        """Of the step that was handed over last."""
        step = self._steps[self.current - 1]
        assert step is not None
        return step

    def claim(self) -> int:
        """The current set, as soon as it may be written. Raises CudaError as Drawn.read does."""
        self._device.use()
        step = self._steps[self.current]
        if step is not None:
            step.read()
        return self.current

    def done(self) -> None:
        """The step in the current set has been handed over; the other set is next."""
        event = self._events[self.current]
        check(cuda.cuEventRecord(event, self._device.stream))
        self._steps[self.current] = Drawn(event, self._results[self.current], self._attendance)
        self.current = (self.current + 1) % len(self._events)
