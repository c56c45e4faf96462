"""What makes a new revision, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.builders import CONFIG, infd
from warmgraph_operator.desired.pod import pod_template
from warmgraph_operator.references import claims_of, config_maps_of
from warmgraph_operator.revision import config_map_digest, revision


def digest(**spec: Any) -> str:
    return revision(infd(**spec).spec, config_maps={})


def test_a_revision_is_the_same_in_every_release() -> None:
    """A changed digest rolls every deployment of every user at an upgrade of the operator."""
    assert digest() == "d7010fdc63"
    assert digest(buckets={"decode": {"eager": [1, 2, 4]}}) == "811f4a7af0"


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"uri": "file:///models/other"}},
        {"model": {"uri": "file:///models/tiny", "revision": "2"}},
        {"engine": {"image": "mine:2"}},
        {"engine": {"kvCache": {"memory": "1Gi"}}},
        {"buckets": {"decode": {"eager": [1]}}},
        {"buckets": {"decode": {"lazy": [1]}}},
        {"warmup": {"knownAnswerCheck": False}},
        {"graphCache": {"mode": "ReadOnly"}},
        {"graphCache": {"volume": {"claimName": "mine"}}},
        {"graphCache": {"retention": {"revisions": 0}}},
        {"template": {"env": [{"name": "A", "value": "1"}]}},
        {"template": {"resources": {"limits": {"memory": "1Gi"}}}},
        {"template": {"terminationGracePeriodSeconds": 60}},
    ],
    ids=str,
)
def test_what_decides_a_pod_makes_a_new_revision(change: dict[str, Any]) -> None:
    assert digest(**change) != digest()


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 0},
        {"replicas": 5},
        {"paused": True},
        {"scaling": {"minReplicas": 0, "maxReplicas": 9, "autoscaler": "None"}},
        {"rollout": {"strategy": "Replace", "historyLimit": 0}},
        {"graphCache": {"volume": {"storageClassName": "fast"}}},
        {"graphCache": {"volume": {"size": "9Gi", "accessMode": "ReadWriteOnce"}}},
        # Written out, though it is the default.
        {"engine": {"device": "cpu", "maxBatchSize": 8, "kvCache": {"blockSize": 16}}},
        {"template": {}},
    ],
    ids=str,
)
def test_what_does_not_decide_a_pod_keeps_the_revision(change: dict[str, Any]) -> None:
    assert digest(**change) == digest()


def test_order_in_a_list_counts_and_order_of_keys_does_not() -> None:
    one, two = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
    assert digest(template={"env": [one, two]}) != digest(template={"env": [two, one]})
    swapped = {"value": "1", "name": "A"}
    assert digest(template={"env": [one]}) == digest(template={"env": [swapped]})


def test_a_changed_config_map_makes_a_new_revision() -> None:
    spec = infd(template={"envFrom": [{"configMapRef": {"name": "settings"}}]}).spec
    contents = [None, {"data": {"A": "1"}}, {"data": {"A": "2"}}, {"binaryData": {"A": "MQ=="}}]
    digests = {
        revision(spec, config_maps={"settings": config_map_digest(content)}) for content in contents
    }
    assert len(digests) == len(contents)


def test_config_maps_are_found_wherever_a_template_may_name_one() -> None:
    template = infd(
        template={
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "a"}}},
                {"name": "B", "value": "b"},
            ],
            "envFrom": [{"configMapRef": {"name": "two"}}, {"secretRef": {"name": "secret"}}],
            "volumes": [
                {"name": "v", "configMap": {"name": "three"}},
                {"name": "w", "projected": {"sources": [{"configMap": {"name": "four"}}]}},
                {"name": "x", "emptyDir": {}},
            ],
        }
    ).spec.template
    assert config_maps_of(template) == ("four", "one", "three", "two")


@pytest.mark.parametrize("name", [None, "", "x y", "../secrets/other", "Upper", 7, {}, "a" * 254])
def test_what_can_name_no_object_is_looked_for_nowhere(name: Any) -> None:
    template = infd(
        template={
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": name}}}],
            "envFrom": [{"configMapRef": {"name": name}}, {"configMapRef": name}],
            "volumes": [
                {"name": "a", "configMap": {"name": name}},
                {"name": "b", "projected": {"sources": [{"configMap": {"name": name}}, name]}},
                {"name": "c", "projected": {"sources": name}},
                {"name": "d", "persistentVolumeClaim": {"claimName": name}},
                {"name": "e", "persistentVolumeClaim": name},
            ],
        }
    ).spec.template
    assert config_maps_of(template) == ()
    assert claims_of(template) == ()


def test_the_revision_is_on_every_pod_whatever_labels_a_user_gives() -> None:
    resource = infd(template={"labels": {"warmgraph.dev/revision": "mine", "team": "a"}})
    template = pod_template(resource, revision="r1", config=CONFIG)
    assert template["metadata"]["labels"]["warmgraph.dev/revision"] == "r1"
    assert template["metadata"]["labels"]["team"] == "a"
