"""What the API server does with InferenceDeployments, before any of our processes sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings

from devcluster.api import Running
from kubernetes import client
from tests.apiserver.conftest import ROOT
from tests.apiserver.crd_manifests import (
    ACCEPTED,
    GOOD,
    REFUSED,
    Accepted,
    Refused,
    changed,
)
from tests.apiserver.crd_objects import Objects
from tests.contracts.specs import specs
from warmgraph_api import crd, labels
from warmgraph_api.inferencedeployment import InferenceDeployment
from warmgraph_api.resource import Model, Spec

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture(scope="session")
def objects(control_plane: Running) -> Objects:
    return Objects(control_plane.kubeconfig)


@pytest.fixture
def deployment(objects: Objects, request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of an InferenceDeployment that exists for one test."""
    name = request.node.name.replace("_", "-")[:51].strip("-")
    objects.create(changed({"metadata.name": name}), dry=False)
    yield name
    objects.delete(name)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_bad_manifest_is_refused_with_its_reason(objects: Objects, case: Refused) -> None:
    message = objects.refusal(changed(case.changes))
    assert case.says in message
    assert case.at in message


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_a_good_manifest_is_accepted_and_decodes(objects: Objects, case: Accepted) -> None:
    """What the API server stores must never be what our processes cannot read."""
    created = objects.create(changed(case.changes))
    decoded = msgspec.convert(created, InferenceDeployment)
    assert msgspec.to_builtins(decoded.spec) == created["spec"]


def test_whatever_the_tests_make_up_is_accepted(objects: Objects) -> None:
    """Other tests draw specs at random: they must be ones that a user can have."""

    # The API server and this test are one process each; a hundred objects take a few seconds.
    @settings(max_examples=100)
    @given(spec=specs())
    def accepted(spec: Spec) -> None:
        written = msgspec.to_builtins(spec)
        assert objects.create(GOOD | {"spec": written})["spec"] == written

    accepted()


def test_every_rule_has_a_manifest_that_breaks_it() -> None:
    def messages(schema: dict[str, Any]) -> set[str]:
        own = {rule["message"] for rule in schema.get("x-kubernetes-validations", [])}
        children = [*schema.get("properties", {}).values()]
        children += [schema[key] for key in ("items", "additionalProperties") if key in schema]
        return own.union(*(messages(child) for child in children))

    untried = {
        message
        for message in messages(crd.object_schema())
        if not any(case.says in message for case in REFUSED)
    }
    assert untried == set()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_accepted(control_plane: Running, path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    # A ScaledObject needs KEDA's CRD, which is not ours to install.
    known = [document for document in documents if not document["apiVersion"].startswith("keda.sh")]
    answer = control_plane.kubectl(
        "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(known)
    )
    assert len(answer.splitlines()) == len(known)
    assert f"{labels.SINGULAR}.{labels.GROUP}/" in answer


def test_the_api_server_fills_in_the_defaults_of_the_types(
    objects: Objects,
) -> None:
    filled = objects.create(GOOD)["spec"]
    assert filled == msgspec.to_builtins(Spec(model=Model(uri=GOOD["spec"]["model"]["uri"])))


def test_an_empty_object_is_filled_like_an_absent_one(objects: Objects) -> None:
    parts = ["engine", "buckets", "warmup", "graphCache", "scaling", "rollout", "template"]
    emptied = changed({f"spec.{part}": {} for part in parts})
    assert objects.create(emptied)["spec"] == objects.create(GOOD)["spec"]


def test_an_object_from_the_api_server_decodes(objects: Objects) -> None:
    created = objects.create(GOOD)
    decoded = msgspec.convert(created, InferenceDeployment)
    assert decoded.metadata.uid == created["metadata"]["uid"]
    assert decoded.metadata.generation == 1
    assert decoded.spec.replicas == 1


def test_kubectl_scale_writes_the_replicas(control_plane: Running, deployment: str) -> None:
    control_plane.kubectl("scale", f"infd/{deployment}", "--replicas=0")
    replicas = control_plane.kubectl("get", "infd", deployment, "-o=jsonpath={.spec.replicas}")
    assert replicas == "0"


@pytest.mark.parametrize("how", [[], ["--server-side"]], ids=["client-side", "server-side"])
def test_applying_a_manifest_again_leaves_the_replicas_alone(
    control_plane: Running, objects: Objects, how: list[str]
) -> None:
    """The manifest says nothing of replicas, so what an autoscaler wrote stays."""
    name = f"again-{len(how)}"
    manifest = json.dumps(changed({"metadata.name": name}))
    control_plane.kubectl("apply", *how, "-f", "-", stdin=manifest)
    control_plane.kubectl("scale", f"infd/{name}", "--replicas=3")
    control_plane.kubectl("apply", *how, "-f", "-", stdin=manifest)
    found = json.loads(control_plane.kubectl("get", "infd", name, "-o", "json"))
    objects.delete(name)
    assert found["spec"]["replicas"] == 3
    # One for its creation and one for the scaling: applying the same again is no change.
    assert found["metadata"]["generation"] == 2


def test_a_change_is_held_to_the_same_rules(objects: Objects, deployment: str) -> None:
    with pytest.raises(client.ApiException, match="must not be above"):
        objects.patch(deployment, {"spec": {"scaling": {"minReplicas": 5}}})


def test_two_teams_may_each_apply_their_part_of_the_environment(
    control_plane: Running, objects: Objects
) -> None:
    for team, variable in (("a", "FIRST"), ("b", "SECOND")):
        manifest = changed(
            {"metadata.name": "teams", "spec.template.env": [{"name": variable, "value": team}]}
        )
        control_plane.kubectl(
            "apply",
            "--server-side",
            f"--field-manager={team}",
            "-f",
            "-",
            stdin=json.dumps(manifest),
        )
    found = json.loads(control_plane.kubectl("get", "infd", "teams", "-o", "json"))
    objects.delete("teams")
    names = [variable["name"] for variable in found["spec"]["template"]["env"]]
    assert names == ["FIRST", "SECOND"]


def test_an_autoscaler_reads_replicas_and_selector(objects: Objects, deployment: str) -> None:
    status = {"replicas": 2, "selector": f"{labels.DEPLOYMENT}={deployment}"}
    objects.patch_status(deployment, {"status": status})
    scale = objects.scale_of(deployment)
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == status


def test_spec_and_status_are_written_apart(objects: Objects, deployment: str) -> None:
    status = {"url": "http://somewhere"}

    after_spec = objects.patch(deployment, {"spec": {"paused": True}, "status": status})
    assert after_spec["spec"]["paused"] is True
    assert "status" not in after_spec
    assert after_spec["metadata"]["generation"] == 2

    after_status = objects.patch_status(deployment, {"spec": {"paused": False}, "status": status})
    assert after_status["spec"]["paused"] is True
    assert after_status["status"] == status
    assert after_status["metadata"]["generation"] == 2


def test_a_condition_stands_once(objects: Objects, deployment: str) -> None:
    twice = [condition("Ready", "True"), condition("Ready", "False")]
    with pytest.raises(client.ApiException, match="Duplicate value"):
        objects.patch_status(deployment, {"status": {"conditions": twice}})


def test_kubectl_explains_every_field(control_plane: Running) -> None:
    explained = control_plane.kubectl("explain", "infd.spec", "--recursive")
    assert "targetInFlight" in explained
    one = control_plane.kubectl("explain", "infd.spec.warmup.policy")
    assert "RequireEager: ready once every eager bucket is captured" in " ".join(one.split())


def test_kubectl_get_shows_whether_it_is_warm(
    control_plane: Running, objects: Objects, deployment: str
) -> None:
    conditions = [condition("Ready", "False", reason="WarmingUp")]
    status = {"conditions": conditions, "graphs": {"summary": "eager 2/4"}}
    objects.patch_status(deployment, {"status": status})
    header, row = control_plane.kubectl("get", "infd", deployment).splitlines()
    assert header.split() == (
        ["NAME", "READY", "REASON", "GRAPHS", "REPLICAS", "READY", "REPLICAS", "REVISION", "AGE"]
    )
    assert row.split()[:6] == [deployment, "False", "WarmingUp", "eager", "2/4", "1"]
    assert "URL" in control_plane.kubectl("get", "infd", deployment, "-o", "wide")


def condition(kind: str, status: str, *, reason: str = "Because") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
