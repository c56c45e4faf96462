"""The processes of a cluster and their command lines. Values in, values out: nothing runs here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from devcluster import artifacts, network
from devcluster.packages import program
from devcluster.paths import Layout

NODE_NAME = "devcluster"
REGISTRY_PORT = 5050
"""Not 5000, where Debian's own docker-registry service would listen."""
REGISTRY = f"localhost:{REGISTRY_PORT}"

LOOPBACK = "127.0.0.1"

# A test waits for its control plane, which lives for minutes: collecting garbage less often saves
# a fifth of the processor time of starting, and costs 110 MB.
HASTE = {"GOGC": "400"}


@dataclass(frozen=True)
class Component:
    """One process. A cluster starts its components in the order of their list."""

    name: str
    argv: tuple[str, ...]
    needs_api: bool = False
    """Started only once the API server is ready: it would only fail and retry before."""
    environment: Mapping[str, str] = field(default_factory=dict)


def kubernetes(name: str) -> str:
    return str(artifacts.KUBERNETES.folder / name)


def etcd(layout: Layout, ports: dict[str, int]) -> Component:
    client = f"http://{LOOPBACK}:{ports['etcd']}"
    peer = f"http://{LOOPBACK}:{ports['etcd-peer']}"
    return Component(
        "etcd",
        (
            kubernetes("etcd"),
            "--name=devcluster",
            f"--data-dir={layout.home}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=devcluster={peer}",
            # A development cluster may lose its last second when the machine crashes.
            "--unsafe-no-fsync",
        ),
    )


def apiserver(layout: Layout, ports: dict[str, int], *, full: bool, extras: list[str]) -> Component:
    pki, log = layout.pki, layout.audit_log
    address = network.NODE_ADDRESS if full else LOOPBACK
    argv = [
        kubernetes("kube-apiserver"),
        f"--etcd-servers=http://{LOOPBACK}:{ports['etcd']}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={ports['apiserver']}",
        f"--service-cluster-ip-range={network.SERVICE_RANGE}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        "--anonymous-auth=false",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        f"--audit-policy-file={layout.etc}/audit.json",
        f"--audit-log-path={log}",
        "--audit-log-maxsize=50",
        "--audit-log-maxbackup=1",
    ]
    if full:
        argv += [
            "--endpoint-reconciler-type=lease",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key",
            # The node's name is in nobody's DNS.
            "--kubelet-preferred-address-types=InternalIP",
        ]
    else:
        # There is no node, and a loopback address is no valid endpoint.
        argv.append("--endpoint-reconciler-type=none")
        if "controller-manager" not in extras:
            # Nobody would create the service accounts that this plugin insists on.
            argv.append("--disable-admission-plugins=ServiceAccount")
    return Component("apiserver", tuple(argv))


def controller_manager(layout: Layout, *, full: bool) -> Component:
    # A node without a kubelet says nothing of itself. Its pods are those of whoever made
    # them, and not to be marked unready for that.
    controllers = "*" if full else "*,-node-lifecycle-controller"
    return Component(
        "controller-manager",
        (
            kubernetes("kube-controller-manager"),
            f"--kubeconfig={layout.etc}/controller-manager.kubeconfig",
            f"--service-account-private-key-file={layout.pki}/sa.key",
            f"--root-ca-file={layout.pki}/ca.crt",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            f"--controllers={controllers}",
            f"--cluster-cidr={network.POD_RANGE}",
            # Several clusters side by side would collide on the default port.
            "--secure-port=0",
        ),
        needs_api=True,
    )


def scheduler(layout: Layout) -> Component:
    return Component(
        "scheduler",
        (
            kubernetes("kube-scheduler"),
            f"--kubeconfig={layout.etc}/scheduler.kubeconfig",
            "--leader-elect=false",
            "--secure-port=0",
        ),
        needs_api=True,
    )


def containerd(layout: Layout) -> Component:
    return Component(
        "containerd", (program("containerd"), "--config", f"{layout.etc}/containerd.toml")
    )


def registry(layout: Layout) -> Component:
    return Component(
        "registry", (program("docker-registry"), "serve", f"{layout.etc}/registry.json")
    )


def kubelet(layout: Layout) -> Component:
    return Component(
        "kubelet",
        (
            kubernetes("kubelet"),
            f"--config={layout.etc}/kubelet.json",
            f"--kubeconfig={layout.etc}/kubelet.kubeconfig",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={network.NODE_ADDRESS}",
            f"--root-dir={layout.home}/kubelet",
        ),
        needs_api=True,
    )


def kube_proxy(layout: Layout) -> Component:
    return Component(
        "kube-proxy",
        (
            kubernetes("kube-proxy"),
            f"--kubeconfig={layout.etc}/kube-proxy.kubeconfig",
            f"--hostname-override={NODE_NAME}",
            # iptables mode also serves NodePorts on 127.0.0.1, which nftables mode cannot.
            "--proxy-mode=iptables",
            "--iptables-localhost-nodeports=true",
            # Nothing of a development cluster is for the network outside.
            f"--nodeport-addresses=127.0.0.0/8,{network.POD_RANGE}",
            f"--cluster-cidr={network.POD_RANGE}",
            # The connection-tracking settings are often read-only in a virtual machine.
            "--conntrack-max-per-core=0",
            # A lower score than the parent's needs CAP_SYS_RESOURCE.
            "--oom-score-adj=0",
            # Endpoints come and go in tests that measure how fast: follow them at once.
            "--iptables-min-sync-period=100ms",
            f"--healthz-bind-address={LOOPBACK}:10256",
            f"--metrics-bind-address={LOOPBACK}:10249",
        ),
        needs_api=True,
    )


def coredns(layout: Layout) -> Component:
    return Component(
        "coredns",
        (str(artifacts.COREDNS.folder / "coredns"), "-conf", f"{layout.etc}/Corefile"),
        needs_api=True,
    )


def agent(layout: Layout, ports: dict[str, int], fake_gpus: int) -> Component:
    # The interpreter below any virtual environment: environments come and go.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = Path(sys.base_prefix) / "bin" / version
    return Component(
        "agent",
        (
            str(python),
            "-m",
            "devcluster.agent",
            f"--home={layout.home}",
            f"--port={ports['apiserver']}",
            f"--fake-gpus={fake_gpus}",
        ),
        needs_api=True,
    )


def wanted(
    layout: Layout, ports: dict[str, int], *, full: bool, extras: list[str], fake_gpus: int
) -> list[Component]:
    """Every component of a cluster, in the order of starting. Stopping goes the other way."""
    plane = [etcd(layout, ports), apiserver(layout, ports, full=full, extras=extras)]
    optional: dict[str, Callable[[Layout], Component]] = {
        "controller-manager": partial(controller_manager, full=full),
        "scheduler": scheduler,
    }
    if not full:
        plane += [make(layout) for name, make in optional.items() if name in extras]
        return [replace(component, environment=HASTE) for component in plane]
    return [
        *plane,
        registry(layout),
        containerd(layout),
        *(make(layout) for make in optional.values()),
        coredns(layout),
        kubelet(layout),
        kube_proxy(layout),
        agent(layout, ports, fake_gpus),
    ]
