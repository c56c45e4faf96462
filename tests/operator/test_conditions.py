"""What the five conditions say in each situation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.operator.builders import (
    bucket,
    container,
    deployment,
    faulty,
    infd,
    observed,
    pod,
    report,
    state,
    warming,
)
from warmgraph_api.reasons import Reason
from warmgraph_api.report import BucketMode, BucketState
from warmgraph_api.status import Status
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import Observed
from warmgraph_operator.problem import Problem
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.status.compute import status
from warmgraph_operator.status.facts import Decided

LATE = {"Progressing": {"status": "False", "reason": "ProgressDeadlineExceeded"}}
SERVED = {"currentRevision": "r1", "updatedRevision": "r1"}


def decided(**changes: Any) -> Decided:
    settings: dict[str, Any] = {"revision": "r1", "activators_configured": True, "port": 20000}
    return Decided(**{**settings, **changes})


def said(resource: InferenceDeployment, seen: Observed, **choice: Any) -> dict[str, str]:
    """Each condition as `status reason`."""
    found = status(resource, seen, decided(**choice))
    assert {c.observed_generation for c in found.conditions} == {7}
    return {c.type: f"{c.status} {c.reason}" for c in found.conditions}


def message(
    resource: InferenceDeployment, seen: Observed, kind: str = "Ready", **choice: Any
) -> str:
    found = status(resource, seen, decided(**choice))
    return next(c.message for c in found.conditions if c.type == kind)


def matrix(ready: str, serving: str, warm: str, current: str, progressing: str) -> dict[str, str]:
    return {
        "Ready": ready,
        "Serving": serving,
        "Warm": warm,
        "UpToDate": current,
        "Progressing": progressing,
    }


WELL = matrix(
    "True AllReplicasReady",
    "True AllReplicasReady",
    "True GraphsCaptured",
    "True CurrentRevision",
    "False Stable",
)
NOTHING_YET = observed(deployment=None)


def test_all_is_well() -> None:
    assert said(infd(), observed(pod())) == WELL


def test_just_created() -> None:
    assert said(infd(), NOTHING_YET) == matrix(
        "False Starting", "False Starting", "False Starting", "False Starting", "True Starting"
    )


def test_the_first_pod_warms_up() -> None:
    seen = observed(pod(ready=False), reports={"tiny-1": warming()})
    assert said(infd(), seen) == matrix(
        "False WarmingUp",
        "False WarmingUp",
        "False WarmingUp",
        "False Starting",
        "True WarmingUp",
    )
    assert message(infd(), seen) == "Capturing, eager buckets 1/2"
    assert message(infd(), seen, "Warm") == "missing decode 2"


def test_a_rollout_with_the_old_pod_serving() -> None:
    new = pod("tiny-2", revision="r2", ready=False)
    seen = observed(
        pod(),
        new,
        deployment=deployment(revision="r2"),
        reports={"tiny-1": state(), "tiny-2": warming()},
    )
    assert said(infd(status=SERVED), seen, revision="r2") == matrix(
        "False RollingOut",
        "True AllReplicasReady",
        "False WarmingUp",
        "False RollingOut",
        "True RollingOut",
    )


def test_never_ready_for_a_new_generation_while_only_old_pods_run() -> None:
    """The Deployment has not even been written yet."""
    seen = observed(pod())
    assert said(infd(status=SERVED), seen, revision="r2")["Ready"] == "False RollingOut"
    unseen = deployment()
    unseen["metadata"]["generation"] = 2
    assert said(infd(), observed(pod(), deployment=unseen))["Ready"] == "False Starting"


def test_a_new_revision_in_trouble_is_named_while_the_old_one_serves() -> None:
    pull = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    new = pod("tiny-2", revision="r2", ready=False, containerStatuses=container(state=pull))
    seen = observed(pod(), new, deployment=deployment(revision="r2"))
    said_now = said(infd(status=SERVED), seen, revision="r2")
    assert said_now["Ready"] == "False ImagePullFailed"
    assert said_now["Serving"] == "True AllReplicasReady"
    assert said_now["Progressing"] == "True RollingOut"


def test_between_the_old_and_the_new_pod_of_a_replacement() -> None:
    """No pod runs: that is no rollout that is done. A wake-up looks the same, and is none."""
    seen = observed(deployment=deployment(revision="r2"))
    between = said(infd(status=SERVED), seen, revision="r2", standing_in=True)
    assert between["UpToDate"] == "False RollingOut"
    waking = said(infd(status=SERVED), observed(deployment=deployment()), standing_in=True)
    assert waking["UpToDate"] == "True CurrentRevision"
    assert waking["Serving"] == "True Waking"


def test_a_revision_that_never_ran_is_not_up_to_date() -> None:
    lack = {"status": "False", "reason": "Unschedulable", "message": "Insufficient nvidia.com/gpu"}
    waits = pod(ready=False, conditions=[{"type": "PodScheduled", **lack}])
    first = said(infd(), observed(waits))
    assert (first["Ready"], first["UpToDate"]) == ("False Unschedulable", "False Starting")
    replaced = pod("tiny-2", revision="r2", conditions=[{"type": "PodScheduled", **lack}])
    seen = observed(replaced, deployment=deployment(revision="r2"))
    now = said(infd(status=SERVED), seen, revision="r2")
    assert now["UpToDate"] == "False RollingOut"
    assert "no pod of revision r2" in message(infd(status=SERVED), seen, "UpToDate", revision="r2")


def test_a_revision_that_ran_stays_up_to_date_in_trouble() -> None:
    seen = observed(pod(ready=False), reports={"tiny-1": faulty()})
    assert said(infd(status=SERVED), seen)["UpToDate"] == "True CurrentRevision"


def test_a_pod_that_was_ready_alone_is_proof_that_its_revision_runs() -> None:
    """Of two wanted replicas only one has ever found room, and now it is in trouble."""
    seen = observed(pod(ready=False), reports={"tiny-1": state(ready=False, ready_at=5.0)})
    assert said(infd(), seen)["UpToDate"] == "True CurrentRevision"


def test_a_surge_without_room_says_how_to_do_without() -> None:
    lack = {"status": "False", "reason": "Unschedulable", "message": "Insufficient nvidia.com/gpu"}
    waits = pod("tiny-2", revision="r2", conditions=[{"type": "PodScheduled", **lack}])
    seen = observed(pod(), waits, deployment=deployment(revision="r2"))
    surge, replace = infd(status=SERVED), infd(status=SERVED, rollout={"strategy": "Replace"})
    assert said(surge, seen, revision="r2")["Ready"] == "False Unschedulable"
    assert "rollout.strategy Replace" in message(surge, seen, revision="r2")
    assert "rollout.strategy" not in message(replace, seen, revision="r2")
    first = observed(waits, deployment=deployment(revision="r2"))
    assert "rollout.strategy" not in message(surge, first, revision="r2")


def test_a_rollout_past_its_deadline() -> None:
    new = pod("tiny-2", revision="r2", ready=False)
    late = deployment(revision="r2", conditions=LATE)
    seen = observed(pod(), new, deployment=late)
    said_now = said(infd(status=SERVED), seen, revision="r2")
    assert said_now["Ready"] == "False ProgressDeadlineExceeded"
    assert said_now["Serving"] == "True AllReplicasReady"
    assert said_now["UpToDate"] == "False ProgressDeadlineExceeded"
    assert said_now["Progressing"] == "False ProgressDeadlineExceeded"


def test_a_warmup_that_moves_is_never_past_its_deadline() -> None:
    new = pod("tiny-2", revision="r2", ready=False)
    late = deployment(revision="r2", conditions=LATE)
    seen = observed(pod(), new, deployment=late, reports={"tiny-2": warming()})
    assert said(infd(status=SERVED), seen, revision="r2")["Progressing"] == "True RollingOut"
    restarted = warming(engine_restarts=1)
    seen = observed(pod(), new, deployment=late, reports={"tiny-2": restarted})
    now = said(infd(status=SERVED), seen, revision="r2")
    assert now["Progressing"] == "False ProgressDeadlineExceeded"


def test_rolled_back() -> None:
    seen = observed(pod())
    choice = {"revision": "r2", "rollback_to": "r1", "failed_revision": "r2 failed"}
    assert said(infd(status=SERVED), seen, **choice) == matrix(
        "False RolledBack",
        "True AllReplicasReady",
        "True GraphsCaptured",
        "False RolledBack",
        "False Stable",
    )


def test_zero_on_purpose_is_healthy() -> None:
    seen = observed()
    assert said(infd(replicas=0), seen, standing_in=True) == matrix(
        "True ScaledToZero",
        "True ScaledToZero",
        "False ScaledToZero",
        "True CurrentRevision",
        "False Stable",
    )


def test_zero_with_nobody_to_answer_is_not_serving() -> None:
    seen = observed()
    assert said(infd(replicas=0), seen)["Serving"] == "False ScaledToZero"
    assert "no activator is ready" in message(infd(replicas=0), seen, "Serving")
    without = message(infd(replicas=0), seen, activators_configured=False)
    assert "no activators are installed" in without


def test_on_the_way_to_zero() -> None:
    seen = observed(pod())
    waiting = said(infd(replicas=0), seen, waiting_for_activator=True)
    assert waiting["Ready"] == "False Draining"
    assert waiting["Serving"] == "True AllReplicasReady"
    leaving = said(infd(replicas=0), seen, standing_in=True)
    assert leaving["Ready"] == "True ScaledToZero"
    assert leaving["Progressing"] == "True Draining"


def test_waking_keeps_serving_true() -> None:
    """A gateway that looks at Serving does not drop a model that is being woken."""
    seen = observed(pod(ready=False), reports={"tiny-1": warming()})
    now = said(infd(status=SERVED), seen, standing_in=True)
    assert now["Serving"] == "True Waking"
    assert now["Ready"] == "False Waking"
    assert now["Progressing"] == "True Waking"


def test_waking_into_trouble_is_not_serving() -> None:
    seen = observed(pod(ready=False), reports={"tiny-1": faulty()})
    now = said(infd(status=SERVED), seen, standing_in=True)
    assert now["Serving"] == "False EngineFault"
    assert now["Ready"] == "False EngineFault"


def test_a_first_start_behind_an_activator_is_not_serving() -> None:
    seen = observed(pod(ready=False), reports={"tiny-1": warming()})
    assert said(infd(), seen, standing_in=True)["Serving"] == "False WarmingUp"


def test_scaling_up_stays_ready() -> None:
    seen = observed(pod(), pod("tiny-2", ready=False), reports={"tiny-1": state()})
    now = said(infd(replicas=2), seen)
    assert now["Ready"] == "True PartiallyReady"
    assert now["Serving"] == "True PartiallyReady"
    assert now["Progressing"] == "True Scaling"
    assert now["UpToDate"] == "True CurrentRevision"


def test_scaling_down_stays_ready() -> None:
    seen = observed(pod(), pod("tiny-2"))
    now = said(infd(replicas=1), seen)
    assert now["Ready"] == "True AllReplicasReady"
    assert now["Progressing"] == "True Scaling"


def test_a_stopping_pod_does_not_count() -> None:
    found = status(infd(), observed(pod(), pod("tiny-2", stopping=True)), decided())
    assert (found.replicas, found.ready_replicas) == (1, 1)
    evicted = observed(pod(), pod("tiny-2", ready=False, phase="Failed"))
    assert said(infd(), evicted) == WELL


def test_a_pod_that_was_ready_and_is_not_any_more() -> None:
    lost = state(ready=False, reason="Starting", message="the engine has not reported yet")
    seen = observed(pod(ready=False), reports={"tiny-1": lost})
    now = said(infd(status=SERVED), seen)
    assert now["Ready"] == "False NoReadyReplica"
    assert now["Serving"] == "False NoReadyReplica"


def test_a_pod_that_was_told_to_stop_is_no_trouble() -> None:
    """Its sidecar may know before this pass has seen the deletion."""
    stopping = state(ready=False, reason="Draining", message="draining", draining=True)
    seen = observed(pod(ready=False), reports={"tiny-1": stopping})
    assert said(infd(status=SERVED), seen)["Ready"] == "False Starting"


def test_an_empty_eager_list_is_warm_by_declaration() -> None:
    lazy = state(bucket(1, BucketState.PENDING, BucketMode.LAZY))
    for reports in ({"tiny-1": lazy}, {"tiny-1": state(report=report(buckets=[]))}):
        now = said(infd(), observed(pod(), reports=reports))
        assert now["Warm"] == "True NoEagerBuckets"


def test_an_engine_that_knows_no_buckets_yet_is_not_warm_by_accident() -> None:
    early = warming(report=report(buckets=[], ready_seconds=None))
    seen = observed(pod(ready=False), reports={"tiny-1": early})
    assert said(infd(), seen)["Warm"] == "False WarmingUp"


def test_a_bucket_in_fallback_is_named_and_the_pod_is_ready() -> None:
    degraded = state(bucket(1), bucket(8, BucketState.FALLBACK, reason="out of memory"))
    seen = observed(pod(), reports={"tiny-1": degraded})
    now = said(infd(), seen)
    assert (now["Warm"], now["Ready"]) == ("False DegradedBuckets", "True AllReplicasReady")
    assert "decode 8 (out of memory)" in message(infd(), seen, "Warm")


def test_ready_before_warm_by_policy() -> None:
    capturing = state(bucket(1), bucket(2, BucketState.PENDING))
    now = said(infd(), observed(pod(), reports={"tiny-1": capturing}))
    assert (now["Ready"], now["Warm"]) == ("True AllReplicasReady", "False WarmingUp")


def test_a_ready_pod_that_does_not_answer_once_changes_nothing() -> None:
    before = msgspec.to_builtins(status(infd(), observed(pod()), decided()))
    silent = observed(pod(), reports={})
    assert said(infd(status=before), silent)["Warm"] == "True GraphsCaptured"
    assert said(infd(), silent)["Warm"] == "Unknown Starting"


def test_paused() -> None:
    now = said(infd(paused=True), observed(pod()))
    assert (now["Ready"], now["Progressing"]) == ("True AllReplicasReady", "False Paused")
    other = said(infd(paused=True, status=SERVED), observed(pod()), revision="r2")
    assert (other["Ready"], other["UpToDate"]) == ("False Paused", "False Paused")


@pytest.mark.parametrize("reason", [Reason.NAME_CONFLICT, Reason.APPLY_FAILED])
def test_an_object_that_could_not_be_written(reason: Reason) -> None:
    problem = Problem(reason, "Service tiny: …")
    now = said(infd(), NOTHING_YET, problems=[problem])
    assert now["Ready"] == now["Progressing"] == f"False {reason}"
    serving = said(infd(), observed(pod()), problems=[problem])
    assert serving["Ready"] == f"False {reason}"
    assert serving["Serving"] == "True AllReplicasReady"


def test_two_autoscalers_are_not_ready_but_serving() -> None:
    rival = Problem(Reason.CONFLICTING_AUTOSCALER, "HorizontalPodAutoscaler x …")
    now = said(infd(), observed(pod()), rival=rival)
    assert now["Ready"] == "False ConflictingAutoscaler"
    assert now["Serving"] == "True AllReplicasReady"


def test_pods_that_may_not_be_created() -> None:
    refused = {"ReplicaFailure": {"status": "True", "message": "exceeded quota: gpus"}}
    seen = observed(deployment=deployment(conditions=refused))
    assert said(infd(), seen)["Ready"] == "False PodRejected"
    assert "exceeded quota: gpus" in message(infd(), seen)


def test_a_claim_in_trouble_is_named_only_while_a_pod_needs_it() -> None:
    resource = infd(model={"uri": "pvc://models/a"})
    seen = observed(pod(ready=False), claims={"models": None})
    assert said(resource, seen)["Ready"] == "False ClaimMissing"
    assert said(resource, observed(pod(), claims={"models": None})) == WELL


# --- what does not change


def again(resource: InferenceDeployment, found: Status) -> InferenceDeployment:
    """The resource with the status that was written."""
    return msgspec.structs.replace(resource, status=found)


def test_the_status_of_a_steady_state_is_equal_to_itself() -> None:
    seen = observed(pod())
    first = status(infd(), seen, decided())
    later = observed(
        pod(),
        now=seen.now + timedelta(hours=1),
        reports={"tiny-1": state(report=report(sequence=99, progress=99))},
    )
    assert status(again(infd(), first), later, decided()) == first


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    seen = observed(pod(ready=False), reports={"tiny-1": warming()})
    first = status(infd(status=SERVED), seen, decided())
    later = seen.now + timedelta(minutes=1)
    second = status(again(infd(), first), observed(pod(), now=later), decided())
    times = {c.type: c.last_transition_time for c in second.conditions}
    assert times["Ready"] == "2026-01-01T12:01:00Z"
    assert times["UpToDate"] == "2026-01-01T12:00:00Z"


def test_how_long_something_lasts_is_no_news() -> None:
    def lost(seconds: int) -> Object:
        text = f"the engine has not reported for {seconds} s"
        return {"tiny-1": state(ready=False, reason="EngineFault", message=text)}

    first = status(infd(), observed(pod(ready=False), reports=lost(5)), decided())
    second = observed(pod(ready=False), reports=lost(6))
    assert status(again(infd(), first), second, decided()) == first
