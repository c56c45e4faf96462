"""The exact number of requests in flight: each counts from its acceptance to its last byte.

Autoscaler, drain and scale to zero rely on it: one leaked request keeps a pod awake for ever, one
missed request is cut off. So a request holds a ticket, and closing it is a `with` block's job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from warmgraph_api.report import Load
from warmgraph_engine.scheduler.sequence import Sequence


class Ticket:
    """One request in flight. Use as a context manager."""

    def __init__(self, close: Callable[[Ticket], None]) -> None:
        self._close = close
        self.sequences: list[Sequence] = []
        """Its choices, once submitted."""

    @property
    def running(self) -> bool:
        """Some choice got its turn; before that the request is waiting."""
        return any(sequence.admitted for sequence in self.sequences)

    def __enter__(self) -> Ticket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(self)


class InFlight:
    """Thread-safe: tickets are opened and closed by the server, read by the report."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: set[Ticket] = set()
        self._total = 0
        self._idle_since = clock()

    def open(self) -> Ticket:
        """Accept a request."""
        ticket = Ticket(self._closed)
        with self._lock:
            self._open.add(ticket)
            self._total += 1
        return ticket

    def restart_idle(self) -> None:
        """Count idle time from now on: serving begins."""
        with self._lock:
            self._idle_since = self._clock()

    def load(self) -> Load:
        with self._lock:
            running = sum(ticket.running for ticket in self._open)
            return Load(
                running=running,
                waiting=len(self._open) - running,
                idle_seconds=0.0 if self._open else self._clock() - self._idle_since,
                requests_total=self._total,
            )

    def _closed(self, ticket: Ticket) -> None:
        with self._lock:
            self._open.discard(ticket)
            self._idle_since = self._clock()
