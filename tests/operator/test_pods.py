"""Each way a pod can fail has its own word, and a message that says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.builders import NOW, container, faulty, pod, state, warming
from warmgraph_api.reasons import Reason
from warmgraph_operator.kinds import Object
from warmgraph_operator.pods import diagnose, first_problem, needs_events

ENDED = {"exitCode": 1, "reason": "Error", "message": "Traceback\n  ValueError: bad config"}
LOG = "2026-11-30 09:58:01,114 INFO listening on 0.0.0.0:8000\n"
BACKOFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}


def waiting(reason: str, message: str = "details", name: str = "engine") -> Object:
    return {
        "containerStatuses": container(
            name, state={"waiting": {"reason": reason, "message": message}}
        )
    }


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (waiting("ErrImagePull", "not found"), Reason.IMAGE_PULL_FAILED, "'engine:1'"),
        (waiting("ImagePullBackOff"), Reason.IMAGE_PULL_FAILED, "cannot be pulled: details"),
        (
            waiting("InvalidImageName", ""),
            Reason.IMAGE_PULL_FAILED,
            "cannot be pulled: InvalidImageName",
        ),
        (waiting("ErrImageNeverPull"), Reason.IMAGE_PULL_FAILED, "of container engine"),
        (
            waiting("CreateContainerConfigError", 'secret "token" not found'),
            Reason.POD_REJECTED,
            'secret "token" not found',
        ),
        (
            {"containerStatuses": container(state=BACKOFF, last=ENDED, restarts=5)},
            Reason.ENGINE_CRASH_LOOPING,
            "exited with code 1 (5 restarts): ValueError: bad config",
        ),
        (
            {"containerStatuses": container(last=ENDED, restarts=2)},
            Reason.ENGINE_CRASH_LOOPING,
            "2 restarts",
        ),
        (
            {"containerStatuses": container(last={"exitCode": 137, "reason": "OOMKilled"})},
            Reason.OUT_OF_MEMORY,
            "raise template.resources.limits.memory",
        ),
        (
            {"initContainerStatuses": container("sidecar", state=BACKOFF, last=ENDED, restarts=3)},
            Reason.ENGINE_CRASH_LOOPING,
            "container sidecar exited",
        ),
    ],
)
def test_a_container_in_trouble_is_named(status: Object, reason: Reason, words: str) -> None:
    problem = diagnose(pod(ready=False, **status), None)
    assert problem is not None
    assert problem.reason == reason
    assert words in problem.message and "Pod tiny-1" in problem.message


def test_a_pull_that_is_tried_again_and_again_is_told_in_the_same_words() -> None:
    cause = "rpc error: not found"
    tried = waiting("ErrImagePull", cause)
    waits = waiting("ImagePullBackOff", f'Back-off pulling image "engine:1": ErrImagePull: {cause}')
    first, second = (diagnose(pod(ready=False, **status), None) for status in (tried, waits))
    assert first is not None and first == second


def test_an_unschedulable_pod_says_what_is_missing() -> None:
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    found = pod(ready=False, conditions=[{**unscheduled, "message": message}])
    problem = diagnose(found, None)
    assert problem == (Reason.UNSCHEDULABLE, f"Pod tiny-1: {message}")


def test_a_pod_that_waits_for_its_turn_to_be_scheduled_has_no_problem() -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    assert diagnose(pod(ready=False, conditions=[gated]), None) is None


def test_one_crash_is_not_a_loop() -> None:
    once = container(last=ENDED, restarts=1)
    assert diagnose(pod(ready=False, containerStatuses=once), None) is None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            LOG + "2026-11-30 09:58:03,020 ERROR cannot start: /models/a: no config.json\n\n",
            ": cannot start: /models/a: no config.json",
        ),
        ("Traceback (most recent call last):\n  File x\nValueError: bad", ": ValueError: bad"),
        ("error: " + "x" * 5000, ": error: " + "x" * 292 + "…"),
        ("  \n", "; see its log"),
    ],
)
def test_a_crash_is_told_by_its_last_line(output: str, words: str) -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": output}
    crashed = container(state=BACKOFF, last=ended, restarts=2)
    problem = diagnose(pod(ready=False, containerStatuses=crashed), None)
    assert problem is not None
    assert problem.message == f"Pod tiny-1: container engine exited with code 1 (2 restarts){words}"


def test_a_ready_pod_has_no_problem_whatever_happened_before() -> None:
    recovered = container(last=ENDED, restarts=9)
    assert diagnose(pod(containerStatuses=recovered), faulty()) is None


def test_crashes_of_another_day_do_not_explain_a_fault_of_today() -> None:
    recovered = container(last=ENDED, restarts=9)
    found = pod(ready=False, containerStatuses=recovered)
    problem = diagnose(found, faulty())
    assert problem is not None and problem.reason == Reason.ENGINE_FAULT
    problem = diagnose(found, faulty(engine_connected=False))
    assert problem is not None and problem.reason == Reason.ENGINE_CRASH_LOOPING


@pytest.mark.parametrize(
    "reason", [Reason.WARMUP_STALLED, Reason.WARMUP_FAILED, Reason.ENGINE_FAULT]
)
def test_the_sidecars_verdict_is_passed_on(reason: Reason) -> None:
    problem = diagnose(pod(ready=False), faulty(reason))
    assert problem == (reason, "Pod tiny-1: CudaError: illegal address")


@pytest.mark.parametrize("seen", [None, warming(), state(ready=False, reason="Draining")])
def test_a_pod_on_its_way_has_no_problem(seen: Any) -> None:
    assert diagnose(pod(ready=False), seen) is None


def test_a_volume_that_does_not_mount_is_named() -> None:
    creating = pod(ready=False, **waiting("ContainerCreating", ""))
    message = 'MountVolume.SetUp failed for volume "model": no such host'
    problem = diagnose(creating, None, warning=message)
    assert problem == (Reason.POD_REJECTED, f"Pod tiny-1: {message}")


def test_events_are_read_only_for_pods_that_wait_long_without_a_word() -> None:
    sidecar_waits = container("sidecar", state={"waiting": {"reason": "PodInitializing"}})
    sidecar_runs = container("sidecar")
    unscheduled = [{"type": "PodScheduled", "status": "False"}]
    assert needs_events(pod(ready=False), NOW)
    assert needs_events(pod(ready=False, initContainerStatuses=sidecar_waits), NOW)
    assert not needs_events(pod(ready=False, initContainerStatuses=sidecar_runs), NOW)
    assert not needs_events(pod(ready=False, conditions=unscheduled), NOW)
    assert not needs_events(pod(ready=False, created="2026-01-01T11:59:50Z"), NOW)
    assert not needs_events(pod(), NOW)


def test_the_newest_pod_in_trouble_speaks() -> None:
    pods = (
        pod("old", ready=False, **waiting("ErrImagePull")),
        pod("new", ready=False),
        pod("well"),
    )
    problem = first_problem(pods, {"new": faulty()}, {})
    assert problem is not None and problem.reason == Reason.ENGINE_FAULT
    assert first_problem(pods, {}, {}) is not None
    assert first_problem((pod(),), {}, {}) is None


def test_a_long_message_is_cut() -> None:
    problem = diagnose(pod(ready=False, **waiting("ErrImagePull", "x" * 5000)), None)
    assert problem is not None and len(problem.message) <= 1024
