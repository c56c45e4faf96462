"""Values: each one does something, and a bad one is refused with words."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest

from tests.chart.helm import CHART, EVERYTHING, Helm, HelmError, Object, values

# Another value for each, at which something must change.
OTHER: Object = {
    "nameOverride": "other",
    "fullnameOverride": "other",
    "commonLabels": {"team": "ml"},
    "images.controlPlane": "other:1",
    "images.engine": "other:2",
    "images.pullPolicy": "Always",
    "images.pullSecrets": [{"name": "registry"}],
    "watchNamespaces": ["team-a"],
    "crds.install": False,
    "rbac.aggregateToUserRoles": False,
    "operator.replicas": 2,
    "operator.resyncSeconds": 45,
    "operator.podFsGroup": None,
    "operator.logFormat": "text",
    "operator.logLevel": "debug",
    "activator.enabled": False,
    "activator.replicas": 3,
    "activator.drain.settleSeconds": 6,
    "activator.drain.holdSeconds": 21,
    "activator.drain.forwardSeconds": 101,
    "activator.podDisruptionBudget.enabled": False,
    "activator.podDisruptionBudget.maxUnavailable": "25%",
    "podSecurity.runAsUser": 4242,
    "networkPolicy.enabled": False,
    "networkPolicy.apiServerPorts": [8443],
    "networkPolicy.clients": [],
    "networkPolicy.monitoring": [],
    "networkPolicy.modelNamespaces": ["other"],
    "monitoring.serviceMonitor.enabled": False,
    "monitoring.podMonitor.enabled": False,
    "monitoring.rules.enabled": False,
    "monitoring.rules.warmupMinutes": 7,
    "monitoring.labels": {"release": "prometheus"},
    "monitoring.interval": "30s",
    "monitoring.dashboards.enabled": False,
    "monitoring.dashboards.labels": {"other": "yes"},
} | {
    f"{process}.{name}": value
    for process in ("operator", "activator")
    for name, value in {
        "serviceAccount.create": False,
        "serviceAccount.name": "other",
        "serviceAccount.annotations": {"example.dev/role": "some"},
        "resources": {"requests": {"cpu": "1"}},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"example.dev/note": "some"},
        "podLabels": {"example.dev/tier": "control"},
        "env": [{"name": "EXAMPLE", "value": "some"}],
    }.items()
}

# Maps that the user fills are one value each.
WHOLE = ("labels", "Labels", "annotations", "Annotations", "resources", "nodeSelector", "affinity")


def leaves(tree: Object, prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and not name.endswith(WHOLE):
            yield from leaves(value, f"{path}.")
        else:
            yield path


def changed(path: str, value: object) -> Object:
    """EVERYTHING, with one value more."""
    tree = copy.deepcopy(EVERYTHING)
    *parents, name = path.split(".")
    inner = tree
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[name] = value
    return tree


@pytest.fixture(scope="module")
def baseline(helm: Helm) -> str:
    return helm.text(EVERYTHING)


def test_every_value_is_tried_here() -> None:
    assert set(OTHER) == set(leaves(values()))


@pytest.mark.parametrize("path", OTHER)
def test_every_value_changes_something(helm: Helm, baseline: str, path: str) -> None:
    assert helm.text(changed(path, OTHER[path])) != baseline


def test_every_value_has_a_comment_above_it() -> None:
    unexplained = []
    inside = -1
    above = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        depth = len(line) - len(line.lstrip())
        if inside >= 0 and depth <= inside:
            inside = -1
        name = line.strip().partition(":")[0]
        opens = line.endswith(":")
        if name and not name.startswith("#") and inside < 0:
            if (not opens or name in WHOLE) and not above.lstrip().startswith("#"):
                unexplained.append(line)
            if name in WHOLE:
                inside = depth
        above = line

    assert unexplained == []


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"activator": {"replicas": -1}}, ["activator", "replicas", "minimum"]),
        ({"activator": {"replica": 2}}, ["activator", "replica"]),
        ({"operator": {"logLevel": "loud"}}, ["logLevel", "debug", "warning"]),
        ({"operator": {"resyncSeconds": 0}}, ["resyncSeconds", "minimum"]),
        ({"images": {"engine": "no tag"}}, ["engine", "pattern"]),
        ({"images": {"engine": "untagged"}}, ["engine", "pattern"]),
        ({"images": {"pullPolicy": "Sometimes"}}, ["pullPolicy", "IfNotPresent"]),
        ({"watchNamespaces": ["Team_A"]}, ["watchNamespaces", "pattern"]),
        ({"watchNamespaces": ["a", "a"]}, ["watchNamespaces"]),
        ({"podSecurity": {"runAsUser": 0}}, ["runAsUser", "minimum"]),
        ({"monitoring": {"interval": "15"}}, ["interval", "pattern"]),
        ({"networkPolicy": {"apiServerPorts": []}}, ["apiServerPorts"]),
        ({"crds": {"install": "yes"}}, ["crds", "install", "boolean"]),
        ({"fullnameOverride": "Warm_graph"}, ["fullnameOverride", "pattern"]),
        ({"nameOverride": "-x"}, ["nameOverride", "pattern"]),
        ({"commonLabels": {"app.kubernetes.io/name": "mine"}}, ["commonLabels", "name"]),
        ({"operator": {"podLabels": {"app.kubernetes.io/component": "mine"}}}, ["podLabels"]),
        (
            {name: {"serviceAccount": {"name": "one"}} for name in ("operator", "activator")},
            ["operator.serviceAccount", "activator.serviceAccount", "one"],
        ),
        ({"unknown": 1}, ["unknown"]),
    ],
)
def test_a_bad_value_is_refused_with_words(helm: Helm, bad: Object, words: list[str]) -> None:
    with pytest.raises(HelmError) as refused:
        helm.text(bad)

    message = str(refused.value)
    assert all(word in message for word in words), message


def test_the_chart_can_be_a_part_of_another() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert "global" in schema["properties"]
