"""What every pod on the local cluster may count on."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devcluster import artifacts, health, network
from devcluster.api import DEFAULT_NAME, Cluster
from devcluster.paths import Layout

OURS = str(Layout.of(DEFAULT_NAME).kubeconfig)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        os.environ.get("KUBECONFIG", OURS) != OURS,
        reason="KUBECONFIG names another cluster, and this tests what devcluster promises",
    ),
]

NAMESPACE = "devcluster-test"

# The pause image only: it is on the node already, and these tests need no program in a pod.
MANIFEST = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data, namespace: {NAMESPACE}}}
spec: {{accessModes: [ReadWriteMany], resources: {{requests: {{storage: 1Gi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: some, namespace: {NAMESPACE}, labels: {{app: some}}}}
spec:
  terminationGracePeriodSeconds: 1
  securityContext:
    runAsNonRoot: true
    runAsUser: 12345
    fsGroup: 2000
    seccompProfile: {{type: RuntimeDefault}}
  initContainers:
  - name: sidecar
    image: {artifacts.PAUSE_IMAGE}
    restartPolicy: Always
    securityContext: &restricted
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {{drop: [ALL]}}
  containers:
  - name: main
    image: {artifacts.PAUSE_IMAGE}
    securityContext: *restricted
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: some, namespace: {NAMESPACE}}}
spec: {{selector: {{app: some}}, ports: [{{port: 80}}]}}
"""


def eventually(check: Callable[[], bool], *, timeout_seconds: float = 30) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not check():
        assert time.monotonic() < deadline, "not within the time allowed"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    running = Cluster.ensure()
    delete = ("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=50s")
    running.kubectl(*delete)
    running.kubectl("apply", "-f", "-", stdin=MANIFEST)
    yield running
    running.kubectl(*delete)


def get(cluster: Cluster, what: str, path: str) -> str:
    return cluster.kubectl("get", *what.split(), "-n", NAMESPACE, "-o", f"jsonpath={{{path}}}")


def test_second_up_changes_nothing(cluster: Cluster) -> None:
    before = cluster.status()
    assert before.ready
    Cluster.ensure()
    assert cluster.status() == before


def test_pod_with_a_native_sidecar_is_ready_in_a_restricted_namespace(cluster: Cluster) -> None:
    cluster.kubectl("wait", "pod/some", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=50s")
    assert get(cluster, "pod some", ".status.initContainerStatuses[0].started") == "true"


def test_claim_is_bound_and_its_folder_belongs_to_the_pods_group(cluster: Cluster) -> None:
    cluster.kubectl("wait", "pod/some", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=50s")
    folder = cluster.layout.volumes / get(cluster, "pvc data", ".spec.volumeName")
    assert folder.stat().st_gid == 2000
    assert folder.stat().st_mode & 0o2070 == 0o2070


def test_service_has_a_name_in_the_clusters_dns(cluster: Cluster) -> None:
    address = get(cluster, "service some", ".spec.clusterIP")
    name = f"some.{NAMESPACE}.svc.{network.CLUSTER_DOMAIN}"
    eventually(lambda: health.resolves(name, address) is None)


def test_the_nodes_address_stays_at_one_place_whatever_pods_come_and_go(cluster: Cluster) -> None:
    """Pods remember where it is. NET_ADDR_SET: the bridge takes no other for its ports' sake."""
    bridge = Path("/sys/class/net", network.BRIDGE)
    assert (bridge / "address").read_text().strip() == network.BRIDGE_MAC
    assert (bridge / "addr_assign_type").read_text().strip() == "3"


def test_folder_goes_with_its_claim(cluster: Cluster) -> None:
    cluster.kubectl("wait", "pod/some", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=50s")
    folder = cluster.layout.volumes / get(cluster, "pvc data", ".spec.volumeName")
    cluster.kubectl("delete", "pod/some", "pvc/data", "-n", NAMESPACE, "--timeout=50s")
    eventually(lambda: not folder.exists())
