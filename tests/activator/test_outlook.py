"""What the resource says to a request that waits."""

from __future__ import annotations

import msgspec
import pytest

from tests.activator.objects import condition, deployment, resource
from warmgraph_activator.objects import Deployment
from warmgraph_activator.outlook import HOPELESS, failure, state
from warmgraph_api.reasons import Reason


@pytest.mark.parametrize("reason", list(Reason))
def test_only_reasons_that_need_somebody_end_the_waiting(reason: Reason) -> None:
    found = failure(deployment(condition("Ready", "False", reason, "why")))
    assert (found is not None) == (reason in HOPELESS)
    if found:
        assert found == f"{reason}: why"


def test_what_may_still_change_is_waited_for() -> None:
    assert not HOPELESS & {
        Reason.UNSCHEDULABLE,
        Reason.CLAIM_PENDING,
        Reason.POD_REJECTED,
        Reason.ENGINE_FAULT,
        Reason.WARMUP_STALLED,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        Reason.PAUSED,
    }


BAD = condition("Ready", "False", Reason.IMAGE_PULL_FAILED)


@pytest.mark.parametrize(
    "unaffected",
    [
        deployment(BAD, replicas=0),
        deployment(BAD | {"observedGeneration": 0}),
        deployment(BAD, condition("Serving", "True", Reason.ROLLING_OUT)),
        deployment(BAD | {"status": "True"}),
        deployment(BAD | {"type": "Warm"}),
        deployment(),
    ],
    ids=["at zero", "of an older spec", "another revision serves", "true", "another", "none"],
)
def test_bad_news_of_another_time_or_thing_end_nothing(unaffected: Deployment) -> None:
    assert failure(unaffected) is None


def test_the_state_is_told_also_before_the_operator_spoke() -> None:
    assert state(deployment()) == "the operator has not said yet why"
    assert state(deployment(condition("Ready", "False", "Waking"))) == "Waking"


def test_a_newer_resource_is_understood() -> None:
    value = resource("llm", port=20001, queueLimit=0) | {"apiVersion": "x", "kind": "y"}
    value["spec"]["engine"]["device"] = "tpu"
    value["spec"]["scaling"]["autoscaler"] = "Oracle"
    value["spec"]["new"] = {"a": [1]}
    read = msgspec.json.decode(msgspec.json.encode(value), type=Deployment)
    assert read.port == 20001
    assert read.spec.scaling.activation.queue_limit == 0


def test_a_resource_without_defaults_has_them() -> None:
    read = msgspec.convert({"metadata": {"name": "x", "namespace": "y"}, "spec": {}}, Deployment)
    assert (read.spec.replicas, read.spec.engine.max_batch_size, read.port) == (1, 8, 0)
    assert read.spec.scaling.activation.timeout_seconds == 300
