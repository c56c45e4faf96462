"""The real thing: a control plane of its own comes up, is repaired, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import cli
from devcluster.api import ControlPlane, Running, sweep
from devcluster.paths import Layout
from devcluster.process import alive, identify

# A machine that is busy with builds starts a control plane five times as slowly.
pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder of the tests' own, so that nobody's cluster is in the way."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARMGRAPH_STATE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def plane(state: Path) -> Iterator[Running]:
    with ControlPlane() as running:
        yield running


def pid_of(plane: Running, name: str) -> int:
    pids = {component.name: component.pid for component in plane.status().components}
    pid = pids[name]
    assert pid is not None
    return pid


def up(plane: Running) -> None:
    assert cli.main(["up", "--control-plane-only", "--name", plane.layout.name]) == 0


def test_kubectl_works_with_the_kubeconfig(plane: Running) -> None:
    plane.kubectl("create", "configmap", "some", "--from-literal=a=b")
    assert plane.kubectl("get", "configmap", "some", "-o", "jsonpath={.data.a}") == "b"


def test_pod_security_is_enforced(plane: Running) -> None:
    plane.kubectl("create", "namespace", "strict")
    plane.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        plane.kubectl("run", "some", "--image=some", "-n", "strict")
    assert "violates PodSecurity" in refusal.value.stderr


def test_writes_are_in_the_audit_log(plane: Running) -> None:
    plane.kubectl("create", "configmap", "audited")
    entries = [json.loads(line) for line in plane.audit_log.read_text().splitlines()]
    names = [entry["objectRef"].get("name") for entry in entries if entry["verb"] == "create"]
    assert "audited" in names


def test_second_up_changes_nothing(plane: Running) -> None:
    before = plane.status()
    up(plane)
    assert plane.status() == before


def test_killed_api_server_is_started_again_with_its_objects(plane: Running) -> None:
    plane.kubectl("create", "configmap", "kept")
    etcd, killed = pid_of(plane, "etcd"), pid_of(plane, "apiserver")
    os.kill(killed, signal.SIGKILL)
    assert cli.main(["status", "--name", plane.layout.name]) == 1
    up(plane)
    assert plane.status().ready
    assert pid_of(plane, "apiserver") != killed
    assert pid_of(plane, "etcd") == etcd
    plane.kubectl("get", "configmap", "kept")


def test_cluster_that_cannot_be_repaired_is_replaced(plane: Running) -> None:
    os.kill(pid_of(plane, "etcd"), signal.SIGKILL)
    for segment in (plane.layout.home / "etcd" / "member" / "wal").glob("*.wal"):
        segment.write_bytes(b"no log at all")
    up(plane)
    assert plane.status().ready


@pytest.fixture(scope="module")
def orphan(plane: Running) -> Running:
    """Another control plane, beside the first, whose test process was killed."""
    code = """
import os, signal
from devcluster.api import ControlPlane
with ControlPlane(name="orphan", extras=["controller-manager"]):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    # The package's own folder, wherever the tests were started.
    path = str(Path(cli.__file__).parents[1])
    killed = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    return Running(Layout.of("orphan"))


def test_two_run_side_by_side(plane: Running, orphan: Running) -> None:
    assert orphan.status().server != plane.status().server
    # Only the other one has the controller manager, which is what ends a namespace.
    orphan.kubectl("create", "namespace", "short-lived")
    orphan.kubectl("delete", "namespace", "short-lived", "--timeout=30s")


def test_control_plane_of_a_killed_test_run_is_swept(plane: Running, orphan: Running) -> None:
    etcd = identify(pid_of(orphan, "etcd"))
    assert etcd is not None
    sweep()
    assert not alive(etcd)
    assert not orphan.layout.home.exists()
    assert plane.status().ready


def test_unknown_cluster_is_named_with_what_to_do(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["status", "--name", "nobody"]) == 1
    assert "`devcluster up` makes one" in capsys.readouterr().err
