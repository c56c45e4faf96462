"""What a cluster of each kind consists of, and what its configuration says."""

import json
from pathlib import Path

import pytest

from devcluster import components, configs, network, supervisor
from devcluster.components import Component
from devcluster.paths import Layout

PORTS = {"etcd": 1, "etcd-peer": 2, "apiserver": 3}


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setattr(components, "program", lambda name: f"/usr/bin/{name}")
    return Layout(tmp_path / "some")


def wanted(layout: Layout, *, full: bool, extras: list[str] | None = None) -> dict[str, Component]:
    found = components.wanted(layout, PORTS, full=full, extras=extras or [], fake_gpus=2)
    return {component.name: component for component in found}


def test_control_plane_is_etcd_and_api_server_on_loopback(layout: Layout) -> None:
    found = wanted(layout, full=False)
    assert list(found) == ["etcd", "apiserver"]
    assert "--bind-address=127.0.0.1" in found["apiserver"].argv


def test_extras_of_a_control_plane_come_when_asked_for(layout: Layout) -> None:
    assert "controller-manager" in wanted(layout, full=False, extras=["controller-manager"])


@pytest.mark.parametrize("extras", [[], ["controller-manager"]])
def test_pods_need_no_service_account_when_nobody_creates_one(
    layout: Layout, extras: list[str]
) -> None:
    argv = wanted(layout, full=False, extras=extras)["apiserver"].argv
    assert ("--disable-admission-plugins=ServiceAccount" in argv) == (not extras)


def test_full_node_starts_the_runtime_before_the_kubelet(layout: Layout) -> None:
    names = list(wanted(layout, full=True))
    assert names.index("etcd") < names.index("apiserver")
    assert names.index("registry") < names.index("containerd") < names.index("kubelet")


def test_machine_without_sys_resource_can_run_pods(layout: Layout) -> None:
    assert "restrict_oom_score_adj = true" in configs.containerd(layout)
    assert configs.kubelet(layout)["oomScoreAdj"] == 0
    assert "--oom-score-adj=0" in wanted(layout, full=True)["kube-proxy"].argv


def test_changed_configuration_file_changes_the_fingerprint(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    component = Component("some", ("/bin/some", f"--config={etc}/some.json"))
    (etc / "some.json").write_text("1")
    before = supervisor.fingerprint(component, etc)
    assert supervisor.fingerprint(component, etc) == before
    (etc / "some.json").write_text("2")
    assert supervisor.fingerprint(component, etc) != before


def test_pods_keep_their_addresses_inside_the_cluster_folder(layout: Layout) -> None:
    plugin = json.loads(network.cni_config(layout))["plugins"][0]
    assert plugin["ipam"]["dataDir"].startswith(str(layout.home))


def test_removing_our_rules_leaves_the_others() -> None:
    dump = (
        "*nat\n"
        ":PREROUTING ACCEPT [0:0]\n"
        ":KUBE-SERVICES - [0:0]\n"
        ":DOCKER - [0:0]\n"
        "-A PREROUTING -j KUBE-SERVICES\n"
        "-A PREROUTING -j DOCKER\n"
        '-A FORWARD -i warmgraph0 -m comment --comment "warmgraph-devcluster" -j REJECT\n'
        "COMMIT\n"
    )
    assert network.without_cluster_rules(dump) == (
        "*nat\n:PREROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\n-A PREROUTING -j DOCKER\nCOMMIT\n"
    )
