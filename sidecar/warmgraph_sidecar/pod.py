"""What the sidecar remembers of its pod: the engine's last report, and what came before.

Fed by the edges (report socket, drain, probes) with the time of each event; knows no sockets.
An engine that was restarted inside the pod comes with a new boot id: everything about its
predecessor is forgotten, so nothing of an old boot can make a new one ready.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from warmgraph_api.report import PodState, WarmupReport
from warmgraph_sidecar.verdict import (
    RECONNECT_GRACE_SECONDS,
    Answer,
    Observation,
    Policy,
    liveness,
    readiness,
)

log = logging.getLogger(__name__)


class Pod:
    """The state behind every answer.

    `clock` is monotonic and decides; `wall_clock` only dates `ready_at` for people.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._wall_clock = wall_clock
        self._seen = Observation(waiting_since=clock())
        self._drain_over = False
        self._ready_at: float | None = None
        self._last_ready: float | None = None
        self._boots = 0
        self._logged: tuple[bool, str] | None = None

    @property
    def report(self) -> WarmupReport | None:
        return self._seen.report

    @property
    def report_at(self) -> float:
        return self._seen.report_at

    @property
    def connected(self) -> bool:
        return self._seen.connected

    def engine_can_finish(self) -> bool:
        """Whether requests in flight may still end well: the engine lives, or may reconnect."""
        if self._seen.connected:
            return self.liveness().ok
        return self._clock() - self._seen.waiting_since <= RECONNECT_GRACE_SECONDS

    @property
    def draining(self) -> bool:
        return self._seen.draining

    @property
    def last_ready(self) -> float | None:
        """When this pod last answered that it is ready, or None if it never was."""
        return self._last_ready

    @property
    def engine_restarts(self) -> int:
        return max(0, self._boots - 1)

    # --- events

    def on_report(self, report: WarmupReport) -> None:
        now = self._clock()
        seen, last = self._seen, self._seen.report
        new_boot = last is None or report.boot_id != last.boot_id
        if new_boot:
            self._boots += 1
            if self._drain_over:
                # The drain was for the predecessor: the kubelet runs the hook that calls it
                # also when it restarts an engine whose liveness probe failed.
                self._drain_over = False
                seen = replace(seen, draining=False)
        moved = (
            new_boot
            or last is None
            or report.progress > last.progress
            or report.stage is not last.stage
        )
        self._seen = replace(
            seen,
            report=report,
            connected=True,
            report_at=now,
            progress_at=now if moved else seen.progress_at,
        )
        self.readiness()

    def on_disconnect(self) -> None:
        if self._seen.connected:
            self._seen = replace(self._seen, connected=False, waiting_since=self._clock())
            self.readiness()

    def on_drain(self) -> None:
        """Unready from now on, until a new engine comes after `on_drain_over`."""
        self.readiness()
        self._drain_over = False
        self._seen = replace(self._seen, draining=True)
        self.readiness()

    def on_drain_over(self) -> None:
        self._drain_over = True
        if not self._seen.connected:
            # The engine that never reported is about to be killed; the next one has its own time.
            self._seen = replace(self._seen, waiting_since=self._clock())

    # --- answers

    def readiness(self) -> Answer:
        now = self._clock()
        answer = readiness(self._policy, self._seen, now)
        if answer.ok:
            self._last_ready = now
            if self._ready_at is None:
                self._ready_at = self._wall_clock()
        self._log_change(answer)
        return answer

    def liveness(self) -> Answer:
        return liveness(self._policy, self._seen, self._clock())

    def state(self) -> PodState:
        answer = self.readiness()
        return PodState(
            ready=answer.ok,
            reason=answer.reason,
            message=answer.message,
            draining=self.draining,
            engine_connected=self.connected,
            engine_restarts=self.engine_restarts,
            ready_at=self._ready_at,
            report=self.report,
        )

    def _log_change(self, answer: Answer) -> None:
        """One line per change of mind; messages count time, so they alone are no change."""
        current = (answer.ok, answer.reason)
        if current != self._logged:
            self._logged = current
            word = "ready" if answer.ok else "not ready"
            log.info("%s: %s: %s", word, answer.reason, answer.message)
