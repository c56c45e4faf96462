"""The requests of one deployment that wait: first come, first served, within bounds.

Knows no sockets and no clock. A place counts from the moment its request arrived, also while the
body is still being read, until it gets a pod or leaves; its bytes count until it is left.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import TracebackType

from warmgraph_activator.pods import Lease
from warmgraph_activator.refusal import Outcome, Refusal
from warmgraph_api.resource import Activation

MEBIBYTE = 1 << 20


class Line:
    """`limits` of the current spec may change at any time; places already taken stay."""

    def __init__(self, limits: Activation) -> None:
        self.limits = limits
        self.held = 0
        self.bytes = 0
        self._waiting: OrderedDict[Place, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Places whose request is complete and could be forwarded."""
        return len(self._waiting)

    def enter(self) -> Place:
        """A place for a request, to be used as a context. Raises Refusal if the line is full."""
        if self.held >= self.limits.queue_limit:
            raise Refusal(
                Outcome.QUEUE_FULL,
                f"{self.held} requests wait for a pod already, the limit is "
                f"{self.limits.queue_limit}",
            )
        self.held += 1
        return Place(self)

    def next(self) -> Place | None:
        """The first that waits, without taking it out."""
        return next(iter(self._waiting), None)

    def grant(self, place: Place, lease: Lease) -> None:
        del self._waiting[place]
        place.granted.set_result(lease)

    def refuse_all(self, refusal: Refusal) -> None:
        """End the waiting of every place that has joined; none of them gets a pod any more."""
        for place in list(self._waiting):
            place.granted.set_exception(refusal)
        self._waiting.clear()

    def _join(self, place: Place, *, first: bool) -> None:
        self._waiting[place] = None
        if first:
            self._waiting.move_to_end(place, last=False)

    def _leave(self, place: Place) -> None:
        self._waiting.pop(place, None)


class Place:
    """One request's place in the line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._bytes = 0
        self._counted = True
        self.granted: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()

    def add_bytes(self, count: int) -> None:
        """Account for a part of the body. Raises Refusal if it does not fit."""
        limit = self._line.limits.queue_mebibytes * MEBIBYTE
        if self._bytes + count > limit:
            raise Refusal(
                Outcome.BODY_TOO_LARGE,
                f"no pod is ready, and a request body may have {limit} bytes while it waits",
            )
        if self._line.bytes + count > limit:
            raise Refusal(
                Outcome.QUEUE_FULL,
                f"requests that wait for a pod hold {self._line.bytes} bytes already, "
                f"the limit is {limit}",
            )
        self._bytes += count
        self._line.bytes += count

    def join(self) -> None:
        """Wait for a pod behind all others."""
        self._line._join(self, first=False)

    def rejoin(self) -> None:
        """Wait again, before all others, since the pod it got did not take it."""
        self.granted = asyncio.get_running_loop().create_future()
        if not self._counted:
            self._counted = True
            self._line.held += 1
        self._line._join(self, first=True)

    async def wait(self, seconds: float) -> Lease | None:
        """The pod this request got, or None if there is none within `seconds`.

        Raises the Refusal that ended the waiting.
        """
        await asyncio.wait([self.granted], timeout=seconds)
        if not self.granted.done():
            return None
        self._uncount()
        return self.granted.result()

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._line._leave(self)
        self._uncount()
        self._line.bytes -= self._bytes
        self._bytes = 0
        if self.granted.done() and not self.granted.exception():
            # Releasing twice is harmless; a request that was cancelled just as it got its pod
            # would otherwise keep the slot for ever.
            self.granted.result().release()

    def _uncount(self) -> None:
        if self._counted:
            self._counted = False
            self._line.held -= 1
