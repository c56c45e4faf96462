"""Install, upgrade and uninstall on a real API server, without a node: what is there afterwards."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.api import ControlPlane, Running
from devcluster.wait import wait_for
from tests.chart.helm import CHART, Helm, HelmError

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

NAMESPACE = "system"
CRD = "inferencedeployments.warmgraph.dev"
RESOURCE = CRD
PATH = "/apis/warmgraph.dev/v1alpha1/inferencedeployments"


@pytest.fixture(scope="module")
def plane() -> Iterator[Running]:
    with ControlPlane(extras=["controller-manager"]) as running:
        for name in (NAMESPACE, "team-a", "team-b"):
            running.kubectl("create", "namespace", name)
            running.kubectl(
                "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted"
            )
        yield running


class Release:
    """A release of the chart, on one API server."""

    def __init__(self, plane: Running, helm: Helm) -> None:
        self.plane = plane
        self._helm = helm

    def helm(self, *arguments: str) -> str:
        result = subprocess.run(
            [self._helm.program, *arguments, "--namespace", NAMESPACE],
            env=self.plane.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise HelmError(result.stdout + result.stderr)
        return result.stdout

    def install(self, *settings: str, chart: Path = CHART) -> None:
        options = [word for setting in settings for word in ("--set", setting)]
        self.helm("upgrade", "--install", "release", str(chart), *options)

    def objects(self) -> set[tuple[str, str]]:
        """Kind and name of everything in the cluster that the release has made."""
        kinds = (
            "crd,clusterrole,clusterrolebinding,role,rolebinding,serviceaccount,deployment,service,"
            "poddisruptionbudget,networkpolicy,configmap,secret,pod"
        )
        listed = yaml.safe_load(
            self.plane.kubectl(
                *("get", kinds, "--all-namespaces", "-o", "yaml"),
                *("--selector", "app.kubernetes.io/instance=release"),
            )
        )
        return {(found["kind"], found["metadata"]["name"]) for found in listed["items"]}

    def pods_left(self) -> str | None:
        names = [name for kind, name in self.objects() if kind == "Pod"]
        return f"there are {names}" if names else None

    def crd(self) -> Any:
        return yaml.safe_load(self.plane.kubectl("get", "crd", CRD, "-o", "yaml"))

    def delete_crd(self) -> None:
        """Deletes the resource type once it is served, and waits for its end.

        A type is made ready to be served when somebody first asks for its objects. Should the
        deletion be the first, it finds the storage "(re)initializing", and of two quick tries the
        second may give up for good: crd_finalizer.go of Kubernetes 1.37 takes the conflict with
        its own last write for somebody else's, and waits to be called again.
        """

        def unserved() -> str | None:
            try:
                self.plane.kubectl("get", "--raw", PATH)
            except subprocess.CalledProcessError as error:
                return str(error.stderr)
            return None

        wait_for(f"{PATH} is served", unserved, timeout_seconds=30)
        self.plane.kubectl("delete", "crd", CRD)

    def allowed(self, user: str, verb: str, resource: str, namespace: str) -> bool:
        """Whether a user may do something; `resource` may have a subresource."""
        name, _, subresource = resource.partition("/")
        answer = subprocess.run(
            [
                *("kubectl", "auth", "can-i", verb, name, f"--subresource={subresource}"),
                *("--namespace", namespace, "--as", user),
            ],
            env=self.plane.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return answer.stdout.strip() == "yes"


@pytest.fixture
def release(plane: Running, helm: Helm) -> Iterator[Release]:
    made = Release(plane, helm)
    yield made
    try:
        made.delete_crd()
    finally:
        made.helm("uninstall", "release", "--ignore-not-found", "--wait")


def test_the_api_server_takes_everything(release: Release) -> None:
    release.install(
        "networkPolicy.enabled=true",
        "networkPolicy.modelNamespaces={team-a}",
        "monitoring.dashboards.enabled=true",
        "activator.podDisruptionBudget.maxUnavailable=50%",
    )

    kinds = {kind for kind, _ in release.objects()}
    assert {"Deployment", "NetworkPolicy", "PodDisruptionBudget", "ConfigMap"} <= kinds
    release.plane.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")


def test_pods_are_admitted_under_the_restricted_profile(release: Release) -> None:
    """The profile speaks up at pods, not at Deployments: so their templates are tried as pods."""
    release.install()
    for name in ("operator", "activator"):
        deployment = yaml.safe_load(
            release.plane.kubectl(
                *("get", "deployment", f"release-warmgraph-{name}", "-o", "yaml"),
                *("--namespace", NAMESPACE),
            )
        )
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": deployment["spec"]["template"]["spec"],
        }
        release.plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))


def test_an_upgrade_brings_the_new_crd(release: Release, tmp_path: Path) -> None:
    older = tmp_path / "warmgraph"
    shutil.copytree(CHART, older)
    crd = yaml.safe_load((older / "files" / "crd.yaml").read_text())
    version = crd["spec"]["versions"][0]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["paused"]
    version["additionalPrinterColumns"].pop()
    (older / "files" / "crd.yaml").write_text(yaml.safe_dump(crd))

    def paused_is_known() -> bool:
        schema = release.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return "paused" in schema["properties"]["spec"]["properties"]

    release.install(chart=older)
    assert not paused_is_known()
    release.install()
    assert paused_is_known()


def test_uninstall_leaves_the_crd_and_the_deployments_and_nothing_else(release: Release) -> None:
    release.install("networkPolicy.enabled=true", "monitoring.dashboards.enabled=true")
    release.plane.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")
    resource = {
        "apiVersion": "warmgraph.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "model", "namespace": "team-a"},
        "spec": {"model": {"uri": "pvc://models/model"}},
    }
    release.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(resource))

    release.helm("uninstall", "release", "--wait")

    wait_for("pods end with their Deployments", release.pods_left, timeout_seconds=60)
    assert release.objects() == {("CustomResourceDefinition", CRD)}
    assert "model" in release.plane.kubectl("get", "infd", "--namespace", "team-a")

    release.install()

    assert "model" in release.plane.kubectl("get", "infd", "--namespace", "team-a")


def test_a_crd_applied_by_hand_is_taken_over_when_told(release: Release) -> None:
    release.plane.kubectl("apply", "--server-side", "-f", str(CHART / "files" / "crd.yaml"))
    with pytest.raises(HelmError, match="ownership"):
        release.install()

    force = ("--take-ownership", "--force-conflicts")
    release.helm("upgrade", "--install", "release", str(CHART), *force)

    assert release.crd()["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_accounts_may_act_in_watched_namespaces_only(release: Release) -> None:
    release.install("watchNamespaces={team-a}")
    accounts = f"system:serviceaccount:{NAMESPACE}:release-warmgraph"
    operator, activator = f"{accounts}-operator", f"{accounts}-activator"

    assert release.allowed(operator, "patch", "deployments", "team-a")
    assert not release.allowed(operator, "patch", "deployments", "team-b")
    assert not release.allowed(operator, "get", "secrets", "team-a")
    assert release.allowed(activator, "patch", f"{RESOURCE}/scale", "team-a")
    assert not release.allowed(activator, "patch", f"{RESOURCE}/scale", "team-b")
    assert not release.allowed(activator, "patch", RESOURCE, "team-a")


def test_editors_of_a_namespace_may_edit_its_deployments(release: Release) -> None:
    release.install()
    kubectl = release.plane.kubectl
    for user, role in (("alice", "edit"), ("bob", "view")):
        kubectl(
            *("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}"),
            *("--namespace", "team-b"),
        )
    # A controller adds the rules to both roles within moments.
    for _ in range(60):
        if release.allowed("alice", "create", RESOURCE, "team-b"):
            break
        time.sleep(0.5)

    assert release.allowed("alice", "create", RESOURCE, "team-b")
    assert release.allowed("alice", "patch", f"{RESOURCE}/scale", "team-b")
    assert not release.allowed("alice", "create", RESOURCE, "team-a")
    assert release.allowed("bob", "list", RESOURCE, "team-b")
    assert not release.allowed("bob", "create", RESOURCE, "team-b")
