"""Whose turn it is: the few sets of pinned buffers that steps take in turns.

The host writes a step into one set while the device may still have to read the steps before from
the others. A set is written again only when the step that lay in it is over, and its tokens are
kept by then. So are the times that the device took, which are events in the stream around each
step: to read them, too, waits for nothing but the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda import quick
from warmgraph_engine.backends.cuda.driver import Device, check, wait_for
from warmgraph_engine.backends.cuda.peers import Attendance
from warmgraph_engine.step import StepTimes


class _Events:
    """Where in the stream a step begins and ends."""

    def __init__(self) -> None:
        # With times. Who waits for one sleeps: to look again and again would take half a core for
        # the few µs that it saves, and a pod has a limit.
        flag = cuda.CUevent_flags.CU_EVENT_BLOCKING_SYNC.value
        self.begin = check(cuda.cuEventCreate(flag))
        self.end = check(cuda.cuEventCreate(flag))


@dataclass(frozen=True, slots=True)
class Results:
    """Where a step leaves what it brings, by slot, before its end."""

    drawn: NDArray[Any]
    """Tokens; -1 where the logits hold NaN or infinity."""
    scores: NDArray[Any]
    """See kernels/draw.py."""


class Drawn:
    """What one step draws."""

    def __init__(
        self,
        before: _Events | None,
        events: _Events,
        results: Results,
        attendance: Attendance,
    ) -> None:
        """`before` are the events of the step before this one."""
        self._before, self._events, self._results = before, events, results
        self._attendance = attendance
        self._read: tuple[list[int], NDArray[Any], StepTimes] | None = None

    def read(self) -> Sequence[int]:
        """Wait for the step; tokens by slot, -1 where the logits hold NaN or infinity. Raises
        CudaError if it, or one before it, failed."""
        return self._result()[0]

    def scores(self) -> NDArray[Any]:
        """As `read`: by slot, what kernels/draw.py writes down."""
        return self._result()[1]

    def times(self) -> StepTimes:
        """As `read`."""
        return self._result()[2]

    def _result(self) -> tuple[list[int], NDArray[Any], StepTimes]:
        if self._read is None:
            begin, end = self._events.begin, self._events.end
            wait_for(end)
            self._attendance.check()
            before = self._before
            times = StepTimes(
                idle_seconds=0.0 if before is None else _seconds(before.end, begin),
                busy_seconds=_seconds(begin, end),
            )
            # Kept: the next step but a few is given the same memory.
            self._read = self._results.drawn.tolist(), self._results.scores.copy(), times
        return self._read


def _seconds(begin: Any, end: Any) -> float:
    return float(check(quick.cuEventElapsedTime(begin, end))) / 1e3


class Turns:
    """Used by one thread at a time, as the backend is."""

    def __init__(
        self, device: Device, results: Sequence[Results], attendance: Attendance | None = None
    ) -> None:
        """`results` of each set."""
        self._device, self._results = device, results
        self._attendance = attendance or Attendance()
        # One more than sets: a step may be read as late as when its set is claimed, and it is then
        # that the end of the one before it is asked for.
        self._events = [_Events() for _ in range(len(results) + 1)]
        self._steps: list[Drawn | None] = [None] * len(results)
        self._begun = 0
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

    def poison(self) -> None:
        """Overwrite with -1 the tokens that an earlier step left in the current set: they may be
        those that the next step has to draw. Waits for that step, as claim does."""
        self._results[self.claim()].drawn[:] = -1

    def begin(self) -> None:
        """The step in the current set is handed over from here on."""
        events = self._events[self._begun % len(self._events)]
        check(quick.cuEventRecord(events.begin, self._device.stream))

    def done(self) -> None:
        """The step in the current set has been handed over; the next set is next."""
        number, count = self._begun, len(self._events)
        events = self._events[number % count]
        check(quick.cuEventRecord(events.end, self._device.stream))
        before = self._events[(number - 1) % count] if number else None
        results = self._results[self.current]
        self._steps[self.current] = Drawn(before, events, results, self._attendance)
        self._begun += 1
        self.current = (self.current + 1) % len(self._results)
