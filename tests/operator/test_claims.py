"""Volume claims that keep pods waiting."""

from __future__ import annotations

from typing import Any

from tests.operator.builders import infd, observed
from warmgraph_api.reasons import Reason
from warmgraph_operator.claims import DEFAULT_CLASS, diagnose_claims, mounted_claims
from warmgraph_operator.desired.support import cache_claim, claim_outdated
from warmgraph_operator.kinds import Object


def claim(*, phase: str = "Pending", **spec: Any) -> Object:
    return {
        "metadata": {"name": "tiny-graph-cache"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "2Gi"}},
            **spec,
        },
        "status": {"phase": phase},
    }


def storage_class(name: str, *, default: bool = False) -> Object:
    notes = {DEFAULT_CLASS: "true"} if default else {}
    return {"metadata": {"name": name, "annotations": notes}}


def reason(**changes: Any) -> tuple[str, str]:
    problem = diagnose_claims(infd(), observed(**changes))
    return (problem.reason, problem.message) if problem else ("", "")


def test_a_class_that_does_not_exist_is_named_with_those_that_do() -> None:
    classes = (storage_class("fast"), storage_class("slow"))
    word, message = reason(cache_claim=claim(storageClassName="gold"), storage_classes=classes)
    assert word == Reason.STORAGE_CLASS_MISSING
    assert "gold" in message and "there are: fast, slow" in message


def test_no_default_class_is_named() -> None:
    word, message = reason(cache_claim=claim(), storage_classes=(storage_class("fast"),))
    assert word == Reason.STORAGE_CLASS_MISSING and "no default one" in message
    word, message = reason(cache_claim=claim(), storage_classes=())
    assert word == Reason.STORAGE_CLASS_MISSING and "there is none at all" in message


def test_a_claim_that_waits_for_its_first_pod_is_no_problem() -> None:
    classes = (storage_class("fast", default=True),)
    assert reason(cache_claim=claim(), storage_classes=classes) == ("", "")
    assert reason(cache_claim=claim(storageClassName="fast"), storage_classes=classes) == ("", "")


def test_a_provisioner_that_fails_is_quoted() -> None:
    classes = (storage_class("fast", default=True),)
    warnings = {"tiny-graph-cache": "ReadWriteMany is not supported"}
    word, message = reason(cache_claim=claim(), storage_classes=classes, warnings=warnings)
    assert word == Reason.CLAIM_PENDING and "ReadWriteMany is not supported" in message


def test_classes_that_may_not_be_read_are_not_guessed() -> None:
    assert reason(cache_claim=claim(storageClassName="gold"), storage_classes=None) == ("", "")


def test_a_bound_claim_is_no_problem() -> None:
    assert reason(cache_claim=claim(phase="Bound"), storage_classes=()) == ("", "")


def test_every_claim_that_a_pod_mounts_must_exist() -> None:
    resource = infd(
        model={"uri": "pvc://models/a"},
        graphCache={"volume": {"claimName": "shared"}},
        template={
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "tmp2", "emptyDir": {}},
            ]
        },
    )
    assert mounted_claims(resource) == ("data", "models", "shared")
    there = {"data": claim(phase="Bound"), "models": claim(phase="Bound"), "shared": None}
    problem = diagnose_claims(resource, observed(claims=there))
    assert problem is not None
    assert problem.reason == Reason.CLAIM_MISSING and "shared does not exist" in problem.message


def test_a_cache_that_is_off_mounts_no_claim() -> None:
    off = infd(graphCache={"mode": "Disabled", "volume": {"claimName": "shared"}})
    assert mounted_claims(off) == ()


def test_a_claim_grows_and_keeps_everything_else() -> None:
    live = claim(phase="Bound", storageClassName="fast", accessModes=["ReadWriteOnce"])
    volume = {"size": "4Gi", "storageClassName": "other", "accessMode": "ReadWriteMany"}
    spec = cache_claim(infd(graphCache={"volume": volume}), live)["spec"]
    assert spec == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "4Gi"}},
        "storageClassName": "fast",
    }
    smaller = cache_claim(infd(graphCache={"volume": {"size": "512Mi"}}), live)["spec"]
    assert smaller["resources"]["requests"]["storage"] == "2Gi"


def test_only_an_unbound_claim_is_replaced() -> None:
    other = infd(graphCache={"volume": {"storageClassName": "fast"}})
    assert claim_outdated(other, claim(storageClassName="gold"))
    assert not claim_outdated(other, claim(storageClassName="gold", phase="Bound"))
    assert not claim_outdated(other, claim(storageClassName="fast"))
    once = infd(graphCache={"volume": {"accessMode": "ReadWriteOnce"}})
    assert claim_outdated(once, claim())
    # A default class that the API server filled in is not another class.
    assert not claim_outdated(infd(), claim(storageClassName="default"))
