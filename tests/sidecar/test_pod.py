"""What the sidecar remembers, event by event, on fake time."""

from __future__ import annotations

import pytest

from tests.sidecar.reports import PENDING, eager, policy, report
from warmgraph_api.reasons import Reason
from warmgraph_api.report import Stage
from warmgraph_sidecar.pod import Pod


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pod(clock: Clock) -> Pod:
    return Pod(policy(), clock=clock, wall_clock=lambda: 1_000_000 + clock.now)


def test_a_long_warmup_that_moves_lives(pod: Pod, clock: Clock) -> None:
    for step in range(50):
        pod.on_report(report(stage=Stage.CAPTURING, progress=step, sequence=step))
        clock.now += 99
        assert pod.liveness().ok


def test_heartbeats_alone_are_no_progress(pod: Pod, clock: Clock) -> None:
    for sequence in range(102):
        pod.on_report(report(stage=Stage.CAPTURING, progress=7, sequence=sequence))
        clock.now += 1
    assert pod.liveness().reason is Reason.WARMUP_STALLED
    assert pod.readiness().reason is Reason.WARMUP_STALLED


def test_the_next_stage_is_progress(pod: Pod, clock: Clock) -> None:
    pod.on_report(report(stage=Stage.LOADING_MODEL, progress=7))
    clock.now += 99
    pod.on_report(report(stage=Stage.CAPTURING, progress=7))
    clock.now += 99
    assert pod.liveness().ok


def test_a_restarted_engine_starts_anew(pod: Pod, clock: Clock) -> None:
    pod.on_report(report(progress=40))
    assert pod.state().ready
    pod.on_disconnect()
    clock.now += 3
    assert pod.state().reason == Reason.ENGINE_FAULT
    pod.on_report(
        report(boot_id="second", stage=Stage.CAPTURING, progress=1, buckets=eager(PENDING))
    )
    state = pod.state()
    assert not state.ready
    assert state.reason == Reason.WARMING_UP
    assert state.engine_restarts == 1
    clock.now += 99
    assert pod.liveness().ok, "the new engine has its own stall timeout"


def test_a_reconnect_of_the_same_engine_is_no_restart(pod: Pod, clock: Clock) -> None:
    pod.on_report(report())
    pod.on_disconnect()
    clock.now += 0.5
    assert pod.readiness().ok
    pod.on_report(report(sequence=2))
    assert pod.state().engine_restarts == 0
    assert pod.state().ready


def test_ready_at_is_the_first_time(pod: Pod, clock: Clock) -> None:
    pod.on_report(report(stage=Stage.CHECKING))
    clock.now = 60
    pod.on_report(report())
    clock.now = 70
    pod.on_report(report(boot_id="second"))
    assert pod.state().ready_at == 1_000_060


def test_an_engine_restarted_by_the_kubelet_starts_undrained(pod: Pod) -> None:
    """The preStop hook runs before a restart for liveness too."""
    pod.on_report(report())
    pod.on_drain()
    pod.on_report(report(sequence=2))
    pod.on_drain_over()
    pod.on_report(report(sequence=3))
    assert pod.draining, "the same engine stays drained"
    pod.on_disconnect()
    pod.on_report(report(boot_id="second"))
    assert pod.state().ready


def test_an_engine_that_appears_during_a_drain_stays_out(pod: Pod) -> None:
    pod.on_drain()
    pod.on_report(report())
    assert pod.state().reason == Reason.DRAINING


def test_after_a_kill_the_next_engine_has_its_own_time_to_connect(pod: Pod, clock: Clock) -> None:
    clock.now += 101
    assert not pod.liveness().ok
    pod.on_drain()
    pod.on_drain_over()
    clock.now += 99
    assert pod.liveness().ok


def test_changes_are_logged_once(pod: Pod, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for sequence in range(5):
        clock.now += 1
        pod.on_report(report(sequence=sequence))
        pod.readiness()
    assert [r.getMessage() for r in caplog.records] == ["ready: GraphsCaptured: eager buckets 2/2"]
