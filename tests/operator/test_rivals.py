"""A second autoscaler is found wherever it points."""

from __future__ import annotations

from tests.operator.builders import infd, observed
from warmgraph_api.reasons import Reason
from warmgraph_operator.kinds import Object
from warmgraph_operator.rivals import Rivalry, rivalry

RESOURCE = {"kind": "InferenceDeployment", "name": "tiny"}
DEPLOYMENT = {"kind": "Deployment", "name": "tiny"}
EXTERNAL = {"autoscaler": "External"}


def scaler(name: str, target: Object, kind: str = "HorizontalPodAutoscaler") -> Object:
    return {"kind": kind, "metadata": {"name": name}, "spec": {"scaleTargetRef": target}}


def found(*scalers: Object, **scaling: str) -> Rivalry:
    return rivalry(infd(scaling=scaling), observed(autoscalers=scalers))


def test_others_in_the_namespace_are_nobodys_business() -> None:
    assert found(scaler("a", {"kind": "InferenceDeployment", "name": "other"})) == Rivalry()
    assert found(scaler("a", {"kind": "StatefulSet", "name": "tiny"})) == Rivalry()


def test_the_built_in_one_gives_way() -> None:
    rival = found(scaler("a", RESOURCE))
    assert rival.problem is not None
    assert rival.problem.reason == Reason.CONFLICTING_AUTOSCALER
    assert "HorizontalPodAutoscaler a" in rival.problem.message
    assert not rival.built_in_may_write
    assert not rival.deployment_scaled_by_others


def test_one_external_one_is_what_external_means() -> None:
    assert found(scaler("a", RESOURCE), **EXTERNAL) == Rivalry()


def test_two_external_ones_are_too_many() -> None:
    rival = found(scaler("a", RESOURCE), scaler("b", RESOURCE, "ScaledObject"), **EXTERNAL)
    assert rival.problem is not None
    assert "HorizontalPodAutoscaler a and ScaledObject b" in rival.problem.message


def test_a_scaled_object_and_its_own_autoscaler_are_one() -> None:
    made = scaler("keda-hpa-b", RESOURCE)
    made["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "name": "b"}]
    assert found(scaler("b", RESOURCE, "ScaledObject"), made, **EXTERNAL) == Rivalry()


def test_one_that_scales_the_deployment_is_never_fought() -> None:
    for target in (DEPLOYMENT, {"name": "tiny"}):
        rival = found(scaler("a", target, "ScaledObject"), **EXTERNAL)
        assert rival.problem is not None
        assert rival.deployment_scaled_by_others
        assert not rival.built_in_may_write
