"""One deployment as the activator sees it: its line, its pods, and who goes where.

Knows no sockets. `attend.py` asks the sidecars and wakes the deployment while `busy` is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from warmgraph_activator.line import Line, Place
from warmgraph_activator.objects import Deployment, Key
from warmgraph_activator.outlook import failure, state
from warmgraph_activator.pods import Lease, Pods
from warmgraph_activator.refusal import Outcome, Refusal


class Hold:
    def __init__(self, deployment: Deployment, *, clock: Callable[[], float]) -> None:
        self.deployment = deployment
        self.line = Line(deployment.spec.scaling.activation)
        self.pods = Pods(clock=clock, changed=self.pump)
        self.busy = asyncio.Event()
        """Somebody waits, or has knocked and must not have done so in vain."""
        self.asleep = asyncio.Event()
        """The resource reads zero replicas, as far as is known."""
        self.awake = False
        """It was found or made awake since somebody last came to wake it, and not seen asleep."""
        self.knocked = False
        """A request came for which nobody has looked yet whether the deployment is awake."""
        self._closed: Refusal | None = None
        self.update(deployment)

    @property
    def wanted(self) -> bool:
        """Somebody needs a pod."""
        return self.knocked or self.line.held > 0

    @property
    def key(self) -> Key:
        return self.deployment.key

    # --- what the API server says

    def update(self, deployment: Deployment) -> None:
        """The resource changed: new limits, another size of batch, or bad news."""
        self.deployment = deployment
        self.line.limits = deployment.spec.scaling.activation
        self.pods.max_batch_size = deployment.spec.engine.max_batch_size
        if deployment.spec.replicas == 0:
            self.awake = False
            self.asleep.set()
        else:
            self.asleep.clear()
        refusal = self._refusal()
        if refusal is not None:
            self.line.refuse_all(refusal)
        self.pump()

    def close(self, refusal: Refusal) -> None:
        """Nobody may wait here any more."""
        self._closed = refusal
        self.line.refuse_all(refusal)

    # --- what requests do

    def direct(self) -> Lease | None:
        """A pod at once, if one is ready, has a slot, and nobody waits for it."""
        return None if self.line.waiting else self.pods.lease()

    def enter(self) -> Place:
        """A place in the line. Raises Refusal if there is none, or no pod will ever come."""
        self._check()
        # Also a request that finds the line full, or may not wait at all, is one to wake up for.
        self._knock()
        return self.line.enter()

    def join(self, place: Place) -> None:
        """The request is complete. Raises Refusal if no pod will come for it."""
        self._check()
        place.join()
        self.pump()

    def rejoin(self, place: Place) -> None:
        """The pod it got took no connection. Raises Refusal if no other will come."""
        self._check()
        # Nobody else may have waited while it tried, and then nobody looks after the pods.
        self._knock()
        place.rejoin()

    def timed_out(self) -> Refusal:
        seconds = self.line.limits.timeout_seconds
        return Refusal(
            Outcome.ACTIVATION_TIMEOUT,
            f"no pod of {self.key} became ready within {seconds} s; {state(self.deployment)}",
        )

    def pump(self) -> None:
        """Give free slots to those that wait, in their order."""
        while (place := self.line.next()) is not None:
            lease = self.pods.lease()
            if lease is None:
                return
            self.line.grant(place, lease)

    def _knock(self) -> None:
        self.knocked = self.knocked or not self.awake
        self.busy.set()

    def _check(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def _refusal(self) -> Refusal | None:
        if self._closed is not None:
            return self._closed
        why = failure(self.deployment)
        if why is None or self.pods.any_ready:
            return None
        return Refusal(Outcome.DEPLOYMENT_FAILED, f"{self.key} cannot serve; {why}")
