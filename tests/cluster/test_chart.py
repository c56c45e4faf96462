"""The release that the other tests here run on: is it whole, and what does its upgrade touch?"""

from __future__ import annotations

from collections.abc import Callable

from demo import install
from demo.install import RELEASE, SYSTEM_NAMESPACE
from demo.kube import ROOT, Cluster, wait_until
from tests.cluster.deployment import Deployment, failures


def test_helm_test_finds_nothing(cluster: Cluster) -> None:
    report = cluster.run("helm", "test", RELEASE, "--namespace", SYSTEM_NAMESPACE, "--logs")

    assert "ok: inferencedeployments.warmgraph.dev is served" in report
    assert report.count("ok: http://") == 2
    assert "failed" not in report


def test_an_upgrade_of_the_control_plane_restarts_no_model_pod(
    cluster: Cluster, deploy: Callable[..., Deployment]
) -> None:
    """Though the sidecar in each model pod is of the same image as the operator."""
    deployment = deploy("kept", scaling={"minReplicas": 1, "maxReplicas": 1})
    deployment.wait("Ready")
    before = running(deployment)
    operator = operator_image(cluster)

    upgrade(cluster, "--set", f"images.controlPlane={by_digest(cluster)}")
    try:
        assert operator_image(cluster) != operator
        # A change that no pod depends on: once it is observed, the new operator has been here.
        deployment.patch({"scaling": {"idleSeconds": 4000}})
        deployment.wait("Ready")

        assert running(deployment) == before
    finally:
        upgrade(cluster, "--set", f"images.controlPlane={operator}")


def test_what_an_uninstalled_release_leaves_serves_on_and_the_next_one_takes_it_over(
    cluster: Cluster, deploy: Callable[..., Deployment]
) -> None:
    deployment = deploy("left", scaling={"minReplicas": 1, "maxReplicas": 1})
    deployment.wait("Ready")
    before = running(deployment)
    release = f"app.kubernetes.io/instance={RELEASE}"
    load = deployment.start_load(callers=1)

    cluster.run("helm", "uninstall", RELEASE, "--namespace", SYSTEM_NAMESPACE, "--wait")
    try:
        wait_until(
            lambda: not cluster.get("pods", "-n", SYSTEM_NAMESPACE, "-l", release)["items"],
            timeout_seconds=120,
            what="the end of the control plane's pods",
            hint=f"kubectl get pods -n {SYSTEM_NAMESPACE}",
        )
        for kind in ("clusterrole", "clusterrolebinding"):
            assert not cluster.get(kind, "-l", release)["items"], kind
        answers = deployment.answers(load)
        assert answers
        assert failures(answers) == []
        assert running(deployment) == before
    finally:
        load.kill()
        install.chart(cluster)

    deployment.patch({"scaling": {"idleSeconds": 4000}})
    deployment.wait("Ready")
    assert running(deployment) == before


def running(deployment: Deployment) -> set[tuple[str, int]]:
    """Identity and restarts of every container of every pod."""
    return {
        (status["containerID"], status["restartCount"])
        for pod in deployment.pods()
        for kind in ("containerStatuses", "initContainerStatuses")
        for status in pod["status"][kind]
    }


def operator_image(cluster: Cluster) -> str:
    found = cluster.get("deployment", f"{RELEASE}-operator", "-n", SYSTEM_NAMESPACE)
    image: str = found["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


def by_digest(cluster: Cluster) -> str:
    """The same image under another name: what a release with nothing new in it would look like."""
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=activator"
    pods = cluster.get("pods", "-n", SYSTEM_NAMESPACE, "-l", selector)["items"]
    image: str = pods[0]["status"]["containerStatuses"][0]["imageID"]
    return image


def upgrade(cluster: Cluster, *settings: str) -> None:
    cluster.run(
        *("helm", "upgrade", RELEASE, str(ROOT / "charts" / "warmgraph")),
        *("--namespace", SYSTEM_NAMESPACE, "--reuse-values", "--wait", "--timeout", "5m"),
        *settings,
    )
