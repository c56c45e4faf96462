"""What an install makes."""

from __future__ import annotations

import pytest
import yaml

from tests.chart.helm import CHART, EVERYTHING, ROOT, Helm, Object, one, pod_templates

CRD = ROOT / "crds" / "warmgraph.dev_inferencedeployments.yaml"


def test_helm_lint_finds_nothing(helm: Helm) -> None:
    report = helm.run("lint", "--strict", str(CHART))

    assert "[WARNING]" not in report
    assert "[ERROR]" not in report


def test_the_chart_carries_the_crd_of_the_repository() -> None:
    assert (CHART / "files" / "crd.yaml").read_text() == CRD.read_text(), (
        "run `python -m warmgraph_api.crd`"
    )


def test_the_crd_is_upgraded_with_the_release_and_outlives_it(defaults) -> None:
    crd = one(defaults, "CustomResourceDefinition", "inferencedeployments.warmgraph.dev")

    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert crd["spec"] == yaml.safe_load(CRD.read_text())["spec"]


def test_a_crd_that_somebody_else_owns_is_left_alone(helm: Helm) -> None:
    rendered = helm.render({"crds": {"install": False}})

    assert "CustomResourceDefinition" not in {found["kind"] for found in rendered}


def test_nothing_needs_another_operator_by_default(defaults) -> None:
    groups = {found["apiVersion"].rpartition("/")[0] for found in defaults}

    assert not any("coreos" in group for group in groups)
    assert not {"NetworkPolicy", "ConfigMap"} & {found["kind"] for found in defaults}


def test_everything_is_labelled_as_part_of_the_release(everything) -> None:
    for found in everything:
        labels = found["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "release", found["metadata"]["name"]
        assert labels["app.kubernetes.io/part-of"] == "warmgraph"


def test_namespaced_objects_name_their_namespace(everything) -> None:
    cluster_wide = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
    namespaces = {
        found["metadata"].get("namespace")
        for found in everything
        if found["kind"] not in cluster_wide
    }

    assert namespaces == {"system", "models"}


def test_selectors_hold_nothing_that_an_upgrade_changes(defaults) -> None:
    for found in defaults:
        if found["kind"] == "Deployment":
            assert set(found["spec"]["selector"]["matchLabels"]) == {
                "app.kubernetes.io/name",
                "app.kubernetes.io/instance",
                "app.kubernetes.io/component",
            }


def test_the_operators_selector_finds_the_activators(defaults) -> None:
    operator = one(defaults, "Deployment", "-operator")
    (selector,) = (
        argument.partition("=")[2]
        for argument in operator["spec"]["template"]["spec"]["containers"][0]["args"]
        if argument.startswith("--activator-selector=")
    )
    wanted = dict(pair.split("=") for pair in selector.split(","))
    found = one(defaults, "Deployment", "-activator")["spec"]["template"]["metadata"]["labels"]

    assert wanted.items() <= found.items()


def test_two_operators_elect_a_leader(helm: Helm, defaults) -> None:
    def arguments(objects: list[Object]) -> list[str]:
        (operator,) = one(objects, "Deployment", "-operator")["spec"]["template"]["spec"][
            "containers"
        ]
        found: list[str] = operator["args"]
        return found

    two = helm.render({"operator": {"replicas": 2}})

    assert "--leader-elect" not in arguments(defaults)
    assert "--leader-elect" in arguments(two)
    leases = one(two, "Role", "-operator-release")["rules"][-1]["resources"]
    assert leases == ["leases"]


def test_an_activator_may_end_what_it_holds_before_it_is_killed(helm: Helm) -> None:
    drain = {"settleSeconds": 7, "holdSeconds": 30, "forwardSeconds": 400}
    pod = one(helm.render({"activator": {"drain": drain}}), "Deployment", "-activator")["spec"][
        "template"
    ]["spec"]

    assert pod["terminationGracePeriodSeconds"] > 30 + 400
    assert "--forward-seconds=400" in pod["containers"][0]["args"]


def test_without_activators_the_operator_looks_for_none(helm: Helm) -> None:
    text = helm.text({"activator": {"enabled": False}} | EVERYTHING)

    assert "release-warmgraph-activator" not in text
    assert "--activator-" not in text


def test_one_activator_does_not_block_node_drains(helm: Helm) -> None:
    rendered = helm.render({"activator": {"replicas": 1}})

    assert "PodDisruptionBudget" not in {found["kind"] for found in rendered}


def test_images_are_taken_as_given(helm: Helm) -> None:
    images = {"controlPlane": "registry.example:5000/cp@sha256:" + "a" * 64, "engine": "e:1"}
    rendered = helm.render({"images": images})

    used = {
        container["image"]
        for template in pod_templates(rendered)
        for container in template["spec"]["containers"]
    }
    assert used == {images["controlPlane"]}


@pytest.mark.parametrize(
    ("release", "expected"),
    [("warmgraph", "warmgraph-operator"), ("prod", "prod-warmgraph-operator")],
)
def test_names_follow_the_release(helm: Helm, release: str, expected: str) -> None:
    text = helm.run(
        "template", release, str(CHART), "--show-only", "templates/operator/deployment.yaml"
    )

    assert yaml.safe_load(text)["metadata"]["name"] == expected


def test_notes_say_how_to_begin(helm: Helm) -> None:
    notes = helm.run("install", "release", str(CHART), "--dry-run=client", "--namespace", "system")

    assert "helm test release --namespace system" in notes
    assert "kubectl get infd my-model --watch" in notes
