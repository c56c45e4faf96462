"""What goes wrong on a cluster is named within a minute, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from demo.kube import wait_until
from tests.cluster.deployment import Deployment
from warmgraph_api import labels

Deploy = Callable[..., Deployment]

NAMED_WITHIN_SECONDS = 60


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("no-image", {"engine": {"image": "localhost/nothing-like-it:1"}}, "ImagePullFailed"),
        (
            "no-model",
            {"model": {"uri": "pvc://models/nothing-like-it"}},
            "EngineCrashLooping",
        ),
        ("no-claim", {"model": {"uri": "pvc://nothing-like-it/x"}}, "ClaimMissing"),
        (
            "too-large",
            {"template": {"resources": {"requests": {"cpu": "1000"}, "limits": {"cpu": "1000"}}}},
            "Unschedulable",
        ),
        (
            "no-class",
            {"graphCache": {"volume": {"storageClassName": "nothing-like-it"}}},
            "StorageClassMissing",
        ),
    ],
)
def test_trouble_is_named_in_a_condition(
    deploy: Deploy, name: str, changes: dict[str, object], reason: str
) -> None:
    deployment = deploy(name, **changes)
    deployment.wait("Ready", status="False", reason=reason, timeout=NAMED_WITHIN_SECONDS)
    assert deployment.condition("Ready")["message"]
    deployment.delete()


def test_deleting_the_resource_removes_everything_it_made(deploy: Deploy) -> None:
    deployment = deploy("short-lived")
    deployment.wait("Ready")
    deployment.delete()
    kinds = "deployments,replicasets,pods,services,endpointslices,serviceaccounts,pdb,pvc"
    selector = f"{labels.INSTANCE}={deployment.name}"

    def gone() -> bool:
        return not deployment.kubectl("get", kinds, "-l", selector, "-o", "name").strip()

    wait_until(gone, timeout_seconds=180, what="removal of everything", hint=f"get {kinds}")


def test_a_random_user_id_serves_from_a_read_only_root(deploy: Deploy) -> None:
    """As OpenShift does: a user id that no image knows, for every container of the pod."""
    identity = {"runAsUser": 1_234_560_000, "runAsGroup": 0}
    deployment = deploy("random-user", template={"securityContext": identity})
    deployment.wait("Ready")
    (pod,) = deployment.pods()
    assert pod["spec"]["securityContext"]["runAsUser"] == identity["runAsUser"]
    containers = [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]
    assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in containers)
    answers = deployment.answers(deployment.start_load(callers=1))
    assert [answer.status for answer in answers] == [200] * len(answers)
    assert answers


def test_restarting_the_operator_touches_no_pod(deploy: Deploy) -> None:
    deployment = deploy("untouched", scaling={"autoscaler": "None"})
    deployment.wait("Ready")
    wait_until(
        lambda: deployment.status["graphs"]["lazyCaptured"] == 2,
        timeout_seconds=120,
        what="the lazy captures, after which nothing changes any more",
        hint="kubectl get infd untouched",
    )
    before = [(pod["metadata"]["uid"], pod["status"]) for pod in deployment.pods()]
    version = deployment.get()["metadata"]["resourceVersion"]
    system = ("-n", "warmgraph-system")
    deployment.cluster.kubectl("rollout", "restart", "deployment/warmgraph-operator", *system)
    deployment.cluster.kubectl(
        "rollout", "status", "deployment/warmgraph-operator", "--timeout=120s", *system
    )
    deployment.wait("Ready")
    assert [(pod["metadata"]["uid"], pod["status"]) for pod in deployment.pods()] == before
    assert deployment.get()["metadata"]["resourceVersion"] == version
