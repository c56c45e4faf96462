"""Scaling, waking and rolling while requests keep coming: none fails, none meets a cold pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from demo.kube import wait_until
from tests.cluster.deployment import Deployment, failures, is_ready

Deploy = Callable[..., Deployment]


@pytest.fixture(scope="module")
def deployment(deploy: Deploy) -> Deployment:
    """Only people scale this one, so that each test decides when."""
    made = deploy("load", scaling={"autoscaler": "None", "minReplicas": 0, "maxReplicas": 2})
    made.wait("Ready")
    return made


def eager_buckets_of(state: dict[str, Any]) -> list[str]:
    return [b["state"] for b in state["report"]["buckets"] if b["mode"] == "eager"]


def requests_served(deployment: Deployment, pod: dict[str, Any]) -> int:
    total: int = deployment.pod_state(pod)["report"]["load"]["requestsTotal"]
    return total


def wait_for(done: Callable[[], bool], what: str) -> None:
    wait_until(done, timeout_seconds=240, what=what, hint="the pods' logs")


def test_a_ready_pod_has_every_eager_bucket_and_passed_its_check(deployment: Deployment) -> None:
    state = deployment.pod_state(deployment.awake())
    assert state["ready"]
    states = eager_buckets_of(state)
    assert states and set(states) <= {"Captured", "Restored"}
    assert state["report"]["check"]["state"] == "Passed"


def test_scaling_one_two_one_under_load_fails_no_request(deployment: Deployment) -> None:
    deployment.awake()
    load = deployment.start_load(callers=4)
    deployment.scale(2)
    pods = deployment.wait_pods(2)
    wait_for(
        lambda: all(requests_served(deployment, pod) > 0 for pod in pods),
        "a request to each of the two pods",
    )
    refused = [deployment.requests_refused_while_warming(pod) for pod in pods]
    deployment.scale(1)
    deployment.wait_pods(1)
    answers = deployment.answers(load)

    assert failures(answers) == []
    assert refused == [0, 0], "a request was sent to a pod before its eager buckets were captured"


def test_a_second_pod_restores_what_the_first_captured(deployment: Deployment) -> None:
    deployment.awake()
    deployment.scale(2)
    states = [deployment.pod_state(pod) for pod in deployment.wait_pods(2)]
    newest = max(states, key=lambda state: state["report"]["startedAt"])
    assert newest["report"]["cache"]["result"] == "Hit"
    assert set(eager_buckets_of(newest)) == {"Restored"}


def test_twenty_requests_at_zero_are_all_answered(deployment: Deployment) -> None:
    deployment.scale(0)
    deployment.wait("Ready", reason="ScaledToZero")
    wait_for(lambda: not deployment.pods(), "the end of the last pod")

    answers = deployment.answers(deployment.start_load(callers=20))

    assert len(answers) == 20
    assert failures(answers) == []
    deployment.wait("Ready", reason="AllReplicasReady")
    (pod,) = deployment.pods()
    assert deployment.requests_refused_while_warming(pod) == 0


def test_going_to_zero_and_back_under_load_fails_no_request(deployment: Deployment) -> None:
    before = deployment.awake()["metadata"]["uid"]
    load = deployment.start_load(callers=2)
    deployment.scale(0)
    wait_for(
        lambda: any(
            is_ready(pod) and pod["metadata"]["uid"] != before for pod in deployment.pods()
        ),
        "a new pod, woken by the load",
    )
    answers = deployment.answers(load)
    assert failures(answers) == []


def test_a_rollout_under_load_fails_no_request_and_recaptures(deployment: Deployment) -> None:
    deployment.awake()
    old = deployment.status["currentRevision"]
    load = deployment.start_load(callers=3)
    deployment.patch({"model": {"uri": "pvc://models/smollm2-135m-v2", "revision": "v2"}})
    deployment.wait("UpToDate")
    (pod,) = deployment.wait_pods(1)
    wait_for(lambda: requests_served(deployment, pod) > 0, "a request to the new pod")
    answers = deployment.answers(load)
    state = deployment.pod_state(pod)

    assert failures(answers) == []
    assert deployment.requests_refused_while_warming(pod) == 0
    assert deployment.status["currentRevision"] != old
    assert set(eager_buckets_of(state)) == {"Captured"}, "graphs of the other model were used"
    assert state["report"]["cache"]["result"] in ("Miss", "Refused")
    assert "model_weights_digest" in state["report"]["cache"]["field"]
    assert deployment.status["cache"]["field"] == state["report"]["cache"]["field"]


def test_the_old_version_comes_back_from_its_own_entry(deployment: Deployment) -> None:
    deployment.patch({"model": {"uri": "pvc://models/smollm2-135m-v1", "revision": "v1"}})
    deployment.wait("UpToDate")
    (pod,) = deployment.wait_pods(1)
    assert deployment.pod_state(pod)["report"]["cache"]["result"] == "Hit"
