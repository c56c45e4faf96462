"""The pods of one deployment: which may take a request, and how many each has from here.

Knows no sockets. A pod is ready if its sidecar said so a moment ago, or, where nobody has asked
it lately, if its condition says so. Each pod gets a bounded number of requests at a time, so that
a burst is spread over the pods that come up instead of landing on the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType

from warmgraph_activator.objects import Pod

VERDICT_SECONDS = 3.0
"""How long a sidecar's answer counts more than the pod's condition: until the kubelet's probe
(1 s) and the watch have followed, with room for a loaded node."""

REFUSED_SECONDS = 0.1
"""One round of asking: a pod that refused a connection is asked again before it gets another."""

REQUESTS_PER_SEQUENCE = 2
"""Requests a pod may have for each sequence of its largest batch: one that runs and one that
waits, so that the engine never runs dry between them."""


@dataclass
class _Seen:
    pod: Pod
    verdict: bool | None = None
    verdict_at: float = 0.0
    message: str = ""
    refused_at: float = float("-inf")
    in_flight: int = 0


class Pods:
    """`changed` is called when a slot may have become free."""

    def __init__(self, *, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._seen: dict[str, _Seen] = {}
        self.max_batch_size = 1

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def in_flight(self) -> int:
        return sum(s.in_flight for s in self._seen.values())

    def put(self, pod: Pod) -> None:
        """A pod was added or changed. Another pod under an old name starts with nothing known."""
        known = self._seen.get(pod.name)
        if known is None or known.pod.ip != pod.ip:
            self._seen[pod.name] = _Seen(pod)
        else:
            known.pod = pod
        self._changed()

    def remove(self, name: str) -> None:
        self._seen.pop(name, None)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all others."""
        for name in self._seen.keys() - set(names):
            self.remove(name)

    def to_ask(self) -> list[Pod]:
        """Pods whose sidecar may have news."""
        return [s.pod for s in self._seen.values() if s.pod.may_serve]

    def on_verdict(self, name: str, *, ready: bool | None, message: str) -> None:
        """A sidecar answered, or could not be asked (None): then the condition counts again."""
        seen = self._seen.get(name)
        if seen is None:
            return
        seen.verdict, seen.verdict_at, seen.message = ready, self._clock(), message
        if ready is not False:
            self._changed()

    @property
    def any_ready(self) -> bool:
        return any(self._ready(s) for s in self._seen.values())

    @property
    def message(self) -> str:
        """What the pod that is coming says of itself, or nothing."""
        return next((s.message for s in self._seen.values() if s.pod.may_serve and s.message), "")

    def lease(self) -> Lease | None:
        """A slot of the ready pod with the fewest requests, or None if there is none."""
        limit = REQUESTS_PER_SEQUENCE * self.max_batch_size
        free = [s for s in self._seen.values() if s.in_flight < limit and self._ready(s)]
        if not free:
            return None
        return Lease(min(free, key=lambda s: s.in_flight), self._clock, self._changed)

    def _ready(self, seen: _Seen) -> bool:
        now = self._clock()
        if not seen.pod.may_serve or now - seen.refused_at < REFUSED_SECONDS:
            return False
        if seen.verdict is not None and now - seen.verdict_at < VERDICT_SECONDS:
            return seen.verdict
        return seen.pod.ready


class Lease:
    """One request's slot at a pod, to be used as a context or released by hand."""

    def __init__(
        self, seen: _Seen, clock: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self._seen = seen
        self._clock = clock
        self._changed = changed
        self._released = False
        seen.in_flight += 1

    @property
    def ip(self) -> str:
        return self._seen.pod.ip

    @property
    def pod(self) -> str:
        return self._seen.pod.name

    def on_refused(self) -> None:
        """The pod took no connection: pass it over for a moment, whatever it says."""
        self._seen.refused_at = self._clock()

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._seen.in_flight -= 1
            self._changed()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
