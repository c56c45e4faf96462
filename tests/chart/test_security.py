"""Pods satisfy the restricted profile; accounts may do what the READMEs say and nothing more."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.chart.helm import EVERYTHING, ROOT, Helm, Object, one, pod_templates

Rule = tuple[str, str]


def test_every_pod_satisfies_the_restricted_profile(everything) -> None:
    templates = pod_templates(everything)

    assert len(templates) == 3
    for template in templates:
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert all("hostPath" not in volume for volume in pod.get("volumes", []))
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]


def test_a_user_id_is_only_set_where_one_is_given(helm: Helm, defaults) -> None:
    given = helm.render({"podSecurity": {"runAsUser": 1234567890}})

    for template in pod_templates(defaults):
        assert "runAsUser" not in template["spec"]["securityContext"]
    for template in pod_templates(given):
        assert template["spec"]["securityContext"]["runAsUser"] == 1234567890


def rules_of(role: Object) -> dict[Rule, set[str]]:
    """(API group, resource) → verbs."""
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def documented(process: str) -> list[dict[Rule, set[str]]]:
    """The permissions in a process's README: tables in Markdown, or rules in YAML."""
    text = (ROOT / process / "README.md").read_text()
    rules = [
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(rules:.*?)```", text, re.DOTALL)
    ]
    return [rules_of(role) for role in rules] or tables(text)


def tables(text: str) -> list[dict[Rule, set[str]]]:
    found: list[dict[Rule, set[str]]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "apiGroups":
            found.append({})
            inside = True
        elif inside and not line.startswith("|"):
            inside = False
        elif inside and not cells[0].startswith("-"):
            group = cells[0].strip('`"')
            for resource in re.findall(r"`([^`]+)`", cells[1]):
                found[-1][group, resource] = {verb.strip() for verb in cells[2].split(",")}
    return found


def test_no_rule_has_a_wildcard_or_reads_secrets(everything) -> None:
    roles = [found for found in everything if found["kind"] in ("Role", "ClusterRole")]

    assert roles
    for role in roles:
        for (group, resource), verbs in rules_of(role).items():
            assert "*" not in (group, resource, *verbs), role["metadata"]["name"]
            assert resource not in ("secrets", "pods/exec", "nodes")
            assert not verbs & {"escalate", "bind", "impersonate"}


def test_the_operator_may_do_what_its_readme_says(helm: Helm) -> None:
    objects = helm.render({"operator": {"replicas": 2}})
    served, release, storage = documented("operator")

    assert rules_of(one(objects, "ClusterRole", "warmgraph-operator")) == served
    assert rules_of(one(objects, "Role", "-operator-release")) == release
    assert rules_of(one(objects, "ClusterRole", "-operator-storage")) == storage


def test_the_activator_may_do_what_its_readme_says(defaults) -> None:
    (served,) = documented("activator")

    assert rules_of(one(defaults, "ClusterRole", "warmgraph-activator")) == served


def test_with_named_namespaces_permissions_are_confined_to_them(helm: Helm) -> None:
    objects = helm.render({"watchNamespaces": ["team-a", "team-b"]})

    cluster_wide = {
        found["metadata"]["name"] for found in objects if found["kind"] == "ClusterRoleBinding"
    }
    assert cluster_wide == {"system:release-warmgraph-operator-storage"}
    bindings = [found for found in objects if found["kind"] == "RoleBinding"]
    assert {found["metadata"]["namespace"] for found in bindings} == {
        "team-a",
        "team-b",
        "system",
    }
    assert all(subject["namespace"] == "system" for b in bindings for subject in b["subjects"])
    arguments = one(objects, "Deployment", "-operator")["spec"]["template"]["spec"]["containers"][
        0
    ]["args"]
    assert [a for a in arguments if a.startswith("--namespace=")] == [
        "--namespace=team-a",
        "--namespace=team-b",
    ]


@pytest.mark.parametrize("port", [8000, 8081])
def test_model_pods_are_only_reached_on_their_ports(everything, port: int) -> None:
    policy = one(everything, "NetworkPolicy", "-model-pods")["spec"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy
    peers = [rule["from"] for rule in policy["ingress"] if rule["ports"][0]["port"] == port]
    assert len(peers) == 1
    assert {"matchLabels": {"team": "web"}} not in [p["namespaceSelector"] for p in peers[0]] or (
        port == 8000
    )


def test_requests_come_from_anywhere_unless_clients_are_named(helm: Helm) -> None:
    policies = EVERYTHING | {
        "networkPolicy": {"enabled": True, "modelNamespaces": ["models"]},
    }
    policy = one(helm.render(policies), "NetworkPolicy", "-model-pods")["spec"]

    assert policy["ingress"][0] == {"ports": [{"port": 8000, "protocol": "TCP"}]}
    assert policy["ingress"][1]["from"]
