"""Every combination that decides readiness and liveness, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sidecar.reports import (
    CAPTURED,
    FALLBACK,
    PENDING,
    RESTORED,
    eager,
    lazy,
    policy,
    report,
)
from warmgraph_api.reasons import Reason
from warmgraph_api.report import Check, CheckState, Fault, Stage
from warmgraph_api.resource import OnCaptureFailure, WarmupPolicy
from warmgraph_sidecar.verdict import Observation, liveness, readiness

NOW = 1000.0
LOADED = {"warmup": WarmupPolicy.MODEL_LOADED}
STRICT = {"on_capture_failure": OnCaptureFailure.FAIL}
UNCHECKED = {"known_answer_check": False}
CHECK_PENDING = {"check": Check(state=CheckState.PENDING)}
CHECK_SKIPPED = {"check": Check(state=CheckState.SKIPPED)}
CHECK_FAILED = {"check": Check(state=CheckState.FAILED, message="token 3 differs")}
FAULT = Fault(reason="DeviceLost", message="illegal memory access")
CAPTURING = report(stage=Stage.CAPTURING)


def seen(**changes: Any) -> Observation:
    """A connected engine that has just reported and just moved."""
    values: dict[str, Any] = {
        "report": report(),
        "connected": True,
        "waiting_since": 0.0,
        "report_at": NOW,
        "progress_at": NOW,
    }
    return Observation(**(values | changes))


@pytest.mark.parametrize(
    ("policy_changes", "report_changes", "ready", "reason"),
    [
        # every eager bucket is there
        ({}, {}, True, Reason.GRAPHS_CAPTURED),
        ({}, {"buckets": eager(RESTORED, RESTORED)}, True, Reason.GRAPHS_CAPTURED),
        ({}, {"buckets": eager(CAPTURED) + lazy(PENDING)}, True, Reason.GRAPHS_CAPTURED),
        ({}, {"buckets": eager(CAPTURED) + lazy(FALLBACK)}, True, Reason.GRAPHS_CAPTURED),
        # one is missing, whatever the engine says of its stage
        ({}, {"buckets": eager(CAPTURED, PENDING)}, False, Reason.WARMING_UP),
        ({}, {"stage": Stage.CAPTURING}, False, Reason.WARMING_UP),
        ({}, {"stage": Stage.RESTORING}, False, Reason.WARMING_UP),
        ({}, {"stage": Stage.CHECKING}, False, Reason.WARMING_UP),
        ({}, {"stage": Stage.STARTING, "buckets": []}, False, Reason.STARTING),
        ({}, {"stage": Stage.LOADING_MODEL, "buckets": []}, False, Reason.STARTING),
        # no eager bucket: ready by declaration, and lazy ones never hold it
        ({}, {"buckets": []}, True, Reason.NO_EAGER_BUCKETS),
        ({}, {"buckets": lazy(PENDING, PENDING)}, True, Reason.NO_EAGER_BUCKETS),
        ({}, {"buckets": lazy(PENDING), **CHECK_SKIPPED}, True, Reason.NO_EAGER_BUCKETS),
        ({}, {"buckets": [], **CHECK_PENDING}, True, Reason.NO_EAGER_BUCKETS),
        (STRICT, {"buckets": []}, True, Reason.NO_EAGER_BUCKETS),
        # failed captures
        ({}, {"buckets": eager(CAPTURED, FALLBACK)}, True, Reason.DEGRADED_BUCKETS),
        ({}, {"buckets": eager(FALLBACK), **CHECK_SKIPPED}, True, Reason.DEGRADED_BUCKETS),
        (STRICT, {"buckets": eager(CAPTURED, FALLBACK)}, False, Reason.WARMUP_FAILED),
        (STRICT, {"buckets": eager(CAPTURED) + lazy(FALLBACK)}, True, Reason.GRAPHS_CAPTURED),
        (
            STRICT,
            {"stage": Stage.CAPTURING, "buckets": eager(FALLBACK, PENDING)},
            False,
            Reason.WARMUP_FAILED,
        ),
        # the known-answer check
        ({}, CHECK_PENDING, False, Reason.WARMING_UP),
        ({}, CHECK_SKIPPED, False, Reason.WARMUP_FAILED),
        ({}, CHECK_FAILED, False, Reason.WARMUP_FAILED),
        (UNCHECKED, CHECK_SKIPPED, True, Reason.GRAPHS_CAPTURED),
        (UNCHECKED, CHECK_PENDING, True, Reason.GRAPHS_CAPTURED),
        (UNCHECKED, CHECK_FAILED, False, Reason.WARMUP_FAILED),
        # ModelLoaded: buckets don't count
        (LOADED, {}, True, Reason.GRAPHS_CAPTURED),
        (LOADED, {"buckets": eager(PENDING), **CHECK_PENDING}, True, Reason.WARMING_UP),
        (LOADED | STRICT, {"buckets": eager(FALLBACK)}, True, Reason.WARMING_UP),
        (LOADED, {"buckets": []}, True, Reason.NO_EAGER_BUCKETS),
        (LOADED, {"stage": Stage.LOADING_MODEL}, False, Reason.STARTING),
        (LOADED, CHECK_FAILED, False, Reason.WARMUP_FAILED),
        # the engine cannot serve
        ({}, {"fault": FAULT}, False, Reason.ENGINE_FAULT),
        (LOADED, {"fault": FAULT}, False, Reason.ENGINE_FAULT),
        ({}, {"stage": Stage.FAILED}, False, Reason.WARMUP_FAILED),
        ({}, {"stage": Stage.FAILED, "fault": FAULT}, False, Reason.WARMUP_FAILED),
        ({}, {"stage": Stage.DRAINING}, False, Reason.DRAINING),
    ],
)
def test_readiness_follows_report_and_policy(
    policy_changes: dict[str, Any], report_changes: dict[str, Any], ready: bool, reason: Reason
) -> None:
    answer = readiness(policy(**policy_changes), seen(report=report(**report_changes)), NOW)
    assert (answer.ok, answer.reason) == (ready, reason), answer.message
    assert answer.message


@pytest.mark.parametrize(
    ("observation", "ready", "reason"),
    [
        ({"report": None, "connected": False, "waiting_since": NOW - 1}, False, Reason.STARTING),
        ({"draining": True}, False, Reason.DRAINING),
        ({"draining": True, "report": None, "connected": False}, False, Reason.DRAINING),
        # a lost connection is forgiven for one heartbeat
        ({"connected": False, "waiting_since": NOW - 0.9}, True, Reason.GRAPHS_CAPTURED),
        ({"connected": False, "waiting_since": NOW - 1.1}, False, Reason.ENGINE_FAULT),
        # an open connection that says nothing
        ({"report_at": NOW - 4.9}, True, Reason.GRAPHS_CAPTURED),
        ({"report_at": NOW - 5.1}, False, Reason.ENGINE_FAULT),
        # in a warmup that is nothing unusual
        ({"report": CAPTURING, "report_at": NOW - 60}, False, Reason.WARMING_UP),
        # and one that hung or broke before its connection was lost is not forgiven
        (
            {"connected": False, "waiting_since": NOW, "report_at": NOW - 5.1},
            False,
            Reason.ENGINE_FAULT,
        ),
        (
            {"connected": False, "waiting_since": NOW, "report": report(fault=FAULT)},
            False,
            Reason.ENGINE_FAULT,
        ),
    ],
)
def test_readiness_needs_an_engine_that_reports(
    observation: dict[str, Any], ready: bool, reason: Reason
) -> None:
    answer = readiness(policy(), seen(**observation), NOW)
    assert (answer.ok, answer.reason) == (ready, reason), answer.message


@pytest.mark.parametrize(
    ("observation", "live", "reason"),
    [
        # before the engine ever connected, the stall timeout is the bound
        ({"report": None, "connected": False, "waiting_since": NOW - 99}, True, Reason.STARTING),
        (
            {"report": None, "connected": False, "waiting_since": NOW - 101},
            False,
            Reason.WARMUP_STALLED,
        ),
        # an engine that restarts has the same time again
        ({"connected": False, "waiting_since": NOW - 99}, True, Reason.STARTING),
        ({"connected": False, "waiting_since": NOW - 101}, False, Reason.WARMUP_STALLED),
        # a warmup that moves lives, one that stands still dies, heartbeat or not
        ({"report": CAPTURING, "progress_at": NOW - 99}, True, Reason.STABLE),
        ({"report": CAPTURING, "progress_at": NOW - 101}, False, Reason.WARMUP_STALLED),
        ({"report": CAPTURING, "report_at": NOW - 90}, True, Reason.STABLE),
        # a serving engine has nothing to progress, but must report
        ({"progress_at": NOW - 900}, True, Reason.STABLE),
        ({"report_at": NOW - 29}, True, Reason.STABLE),
        ({"report_at": NOW - 31}, False, Reason.ENGINE_FAULT),
        ({"report": report(stage=Stage.DRAINING), "progress_at": 0.0}, True, Reason.STABLE),
        # faults, of this engine and not of the one before
        (
            {"report": report(fault=FAULT), "connected": False, "waiting_since": NOW},
            True,
            Reason.STARTING,
        ),
        ({"report": report(fault=FAULT)}, False, Reason.ENGINE_FAULT),
        ({"report": report(stage=Stage.FAILED)}, False, Reason.WARMUP_FAILED),
        # failed captures and checks would fail again: alive, and the message stays readable
        ({"report": report(**CHECK_FAILED)}, True, Reason.STABLE),
        ({"report": report(buckets=eager(FALLBACK))}, True, Reason.STABLE),
    ],
)
def test_liveness_fails_only_where_a_restart_helps(
    observation: dict[str, Any], live: bool, reason: Reason
) -> None:
    answer = liveness(policy(**STRICT), seen(**observation), NOW)
    assert (answer.ok, answer.reason) == (live, reason), answer.message
    assert answer.message


@pytest.mark.parametrize("stage", list(Stage))
def test_what_is_not_alive_is_never_ready(stage: Stage) -> None:
    for progress_at in (NOW, 0.0):
        for report_at in (NOW, 0.0):
            for connected in (True, False):
                observation = seen(
                    report=report(stage=stage),
                    connected=connected,
                    progress_at=progress_at,
                    report_at=report_at,
                )
                dead = not liveness(policy(), observation, NOW).ok
                assert not (dead and readiness(policy(), observation, NOW).ok)


def test_messages_name_the_bucket_and_its_reason() -> None:
    stuck = seen(report=report(buckets=eager(CAPTURED, FALLBACK)))
    assert "decode 2 (out of memory)" in readiness(policy(**STRICT), stuck, NOW).message
    many = seen(report=report(buckets=eager(*[PENDING] * 5)))
    message = readiness(policy(), many, NOW).message
    assert message == "eager buckets 0/5, missing decode 1, decode 2, decode 4 and 2 more"


def test_a_fault_is_quoted_in_both_answers() -> None:
    broken = seen(report=report(fault=FAULT))
    for answer in (readiness(policy(), broken, NOW), liveness(policy(), broken, NOW)):
        assert answer.message == "DeviceLost: illegal memory access"
