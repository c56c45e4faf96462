"""The objects that are made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.operator.builders import CONFIG, infd
from warmgraph_operator.desired.flags import drain_timeout_seconds, engine_flags
from warmgraph_operator.desired.model import model_claim, model_directory
from warmgraph_operator.desired.network import activator_slice, service
from warmgraph_operator.desired.pod import pod_template
from warmgraph_operator.desired.support import disruption_budget
from warmgraph_operator.desired.workload import deployment
from warmgraph_operator.kinds import Object


def pod(config: Any = CONFIG, **spec: Any) -> Object:
    template = pod_template(infd(**spec), revision="r1", config=config)
    result: Object = template["spec"]
    return result


def engine(**spec: Any) -> Object:
    (container,) = pod(**spec)["containers"]
    result: Object = container
    return result


def volumes(**spec: Any) -> dict[str, Object]:
    return {volume["name"]: volume for volume in pod(**spec)["volumes"]}


def mounts(**spec: Any) -> dict[str, Object]:
    return {mount["name"]: mount for mount in engine(**spec)["volumeMounts"]}


def test_pods_keep_the_restricted_profile_under_any_user_id() -> None:
    made = pod()
    assert made["automountServiceAccountToken"] is False
    assert made["securityContext"]["runAsNonRoot"] is True
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "runAsUser" not in made["securityContext"]
    for container in (*made["initContainers"], *made["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_group_of_volumes_may_be_left_to_the_platform() -> None:
    assert pod()["securityContext"]["fsGroup"] == 65532
    open_shift = dataclasses.replace(CONFIG, pod_fs_group=None)
    assert "fsGroup" not in pod(open_shift)["securityContext"]


def test_a_user_id_of_the_spec_is_laid_over_the_restricted_profile() -> None:
    made = pod(template={"securityContext": {"runAsUser": 1_234_560_000, "fsGroup": 7}})
    assert made["securityContext"]["runAsUser"] == 1_234_560_000
    assert made["securityContext"]["fsGroup"] == 7
    assert made["securityContext"]["runAsNonRoot"] is True


def test_the_sidecar_starts_first_and_outlives_the_engine() -> None:
    (sidecar,) = pod()["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("sidecar", "Always")
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/healthz", "port": 8081}


def test_readiness_of_the_engine_is_asked_of_the_sidecar_every_second() -> None:
    probe = engine()["readinessProbe"]
    assert probe["httpGet"] == {"path": "/readyz", "port": 8081}
    assert probe["periodSeconds"] == 1
    assert engine()["lifecycle"]["preStop"]["httpGet"] == {"path": "/drain", "port": 8081}


def test_no_fixed_limit_ends_a_slow_start() -> None:
    assert "startupProbe" not in engine()


@pytest.mark.parametrize(
    ("grace", "drain"), [(120, 110), (60, 50), (40, 30), (8, 6), (2, 2), (1, 1)]
)
def test_draining_ends_before_the_grace_period(grace: int, drain: int) -> None:
    assert drain_timeout_seconds(grace) == drain


def test_home_is_writable_unless_the_user_says_otherwise() -> None:
    assert engine()["env"] == [{"name": "HOME", "value": "/tmp"}]
    own = [{"name": "HOME", "value": "/data"}]
    assert engine(template={"env": own})["env"] == own


def test_text_of_the_resource_is_no_reference_to_a_variable() -> None:
    model = {"uri": "pvc://models/a$$b", "revision": "$(HOME)"}
    args = engine(model=model)["args"]
    assert "--model=/models/models/a$$$$b" in args
    assert "--model-revision=$$(HOME)" in args


def test_a_model_on_a_claim_is_mounted_read_only_where_the_engine_looks() -> None:
    uri = {"model": {"uri": "pvc://models/llama/8b"}}
    assert volumes(**uri)["model"]["persistentVolumeClaim"] == {
        "claimName": "models",
        "readOnly": True,
    }
    assert mounts(**uri)["model"] == {
        "name": "model",
        "mountPath": "/models/models",
        "readOnly": True,
    }
    assert "--model=/models/models/llama/8b" in engine(**uri)["args"]


@pytest.mark.parametrize(
    ("uri", "claim", "directory"),
    [
        ("pvc://a/b/c", "a", "/models/a/b/c"),
        ("pvc://a", "a", "/models/a"),
        ("file:///models/x", None, "/models/x"),
    ],
)
def test_where_a_model_is(uri: str, claim: str | None, directory: str) -> None:
    assert model_claim(uri) == claim
    assert model_directory(uri) == directory


def test_graphs_are_kept_for_every_revision_that_can_be_gone_back_to() -> None:
    def kept(**spec: Any) -> str:
        (flag,) = [a for a in engine(**spec)["args"] if a.startswith("--cache-keep-revisions=")]
        return str(flag).partition("=")[2]

    assert kept() == "3"
    assert kept(rollout={"historyLimit": 7}) == "7"
    assert kept(graphCache={"retention": {"revisions": 9}}) == "9"
    none = {"rollout": {"historyLimit": 0}, "graphCache": {"retention": {"revisions": 0}}}
    assert kept(**none) == "0"


def test_the_cache_is_mounted_as_its_mode_says() -> None:
    source = volumes()["cache"]["persistentVolumeClaim"]
    assert source == {"claimName": "tiny-graph-cache"}
    assert "readOnly" not in mounts()["cache"]
    assert mounts(graphCache={"mode": "ReadOnly"})["cache"]["readOnly"] is True
    given = volumes(graphCache={"volume": {"claimName": "shared"}})
    assert given["cache"]["persistentVolumeClaim"] == {"claimName": "shared"}
    off = {"graphCache": {"mode": "Disabled"}}
    assert "cache" not in volumes(**off) and "cache" not in mounts(**off)
    assert not any(flag.startswith("--cache-directory") for flag in engine(**off)["args"])


def test_gpus_are_asked_for_unless_the_user_asks() -> None:
    assert engine()["resources"] == {}
    cuda = {"device": "cuda", "tensorParallelSize": 2}
    assert engine(engine=cuda)["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    for key in ("amd.com/gpu", "nvidia.com/mig-1g.10gb"):
        own = {"limits": {key: 1}}
        assert engine(engine=cuda, template={"resources": own})["resources"] == own


def test_placement_and_the_users_own_volumes_are_passed_on() -> None:
    template = {
        "nodeSelector": {"gpu": "h200"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "high",
        "volumes": [{"name": "data", "emptyDir": {}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "envFrom": [{"secretRef": {"name": "token"}}],
    }
    made = pod(template=template)
    for key in ("nodeSelector", "tolerations", "imagePullSecrets", "priorityClassName"):
        assert made[key] == template[key]
    assert volumes(template=template)["data"] == {"name": "data", "emptyDir": {}}
    assert mounts(template=template)["data"]["mountPath"] == "/data"
    assert engine(template=template)["envFrom"] == template["envFrom"]
    assert "affinity" not in made


def test_values_of_zero_reach_the_deployment() -> None:
    rollout = {"maxSurge": 0, "maxUnavailable": 1, "historyLimit": 0}
    made = deployment(infd(rollout=rollout), replicas=0, template={})["spec"]
    assert made["replicas"] == 0
    assert made["revisionHistoryLimit"] == 0
    assert made["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert made["selector"] == {"matchLabels": {"warmgraph.dev/inference-deployment": "tiny"}}


def test_a_budget_never_holds_up_the_drain_of_a_single_replica() -> None:
    spec = disruption_budget(infd())["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_activators_slice_merges_with_the_services_own() -> None:
    made = activator_slice(infd(), addresses=["10.0.0.9", "10.0.0.8"], port=20003)
    ((port,), (service_port,)) = made["ports"], service(infd())["spec"]["ports"]
    assert port["name"] == service_port["name"] == "http"
    assert port["port"] == 20003
    assert made["addressType"] == "IPv4"
    six = activator_slice(infd(), addresses=["fd00::9"], port=20003)
    assert six["addressType"] == "IPv6"


def test_buckets_are_passed_on_and_empty_lists_left_out() -> None:
    buckets = {"decode": {"eager": [1, 2], "lazy": [4]}, "prefill": {"eager": [64]}}
    flags = engine_flags(infd(buckets=buckets).spec, namespace="space", name="tiny", revision="r1")
    given = [flag for flag in flags if "buckets" in flag]
    assert given == [
        "--buckets-preset=None",
        "--decode-buckets=1,2",
        "--decode-buckets-lazy=4",
        "--prefill-buckets=64",
    ]
