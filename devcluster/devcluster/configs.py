"""The configuration files of the components, and the certificates they name."""

from __future__ import annotations

import json
from typing import Any

from devcluster import artifacts, certificates, kubeconfig, network
from devcluster.components import LOOPBACK, NODE_NAME, REGISTRY, REGISTRY_PORT
from devcluster.paths import Layout
from devcluster.record import write_atomically

# Kubernetes' own names for its users, which its built-in roles are bound to.
USERS = {
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
NODE_USERS = {
    "kubelet": (f"system:node:{NODE_NAME}", "system:nodes"),
    "kube-proxy": ("system:kube-proxy", ""),
    "coredns": ("devcluster:coredns", ""),
    "agent": ("devcluster:agent", ""),
}
ADMINISTRATOR = ("devcluster:admin", "system:masters")


def write(layout: Layout, ports: dict[str, int], *, full: bool) -> None:
    """Writes everything that the components read. The same again when nothing changed."""
    address = network.NODE_ADDRESS if full else LOOPBACK
    certificates.ensure_authority(layout.pki)
    hosts = [
        "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
        f"kubernetes.default.svc.{network.CLUSTER_DOMAIN}",
        LOOPBACK, network.NODE_ADDRESS, network.KUBERNETES_SERVICE_ADDRESS,
    ]  # fmt: skip
    certificates.ensure_certificate(
        layout.pki, "apiserver", common_name="kube-apiserver", hosts=hosts
    )
    users = {"admin": ADMINISTRATOR, **USERS, **(NODE_USERS if full else {})}
    for name, (user, group) in users.items():
        certificates.ensure_certificate(layout.pki, name, common_name=user, group=group)
        path = layout.kubeconfig if name == "admin" else layout.etc / f"{name}.kubeconfig"
        text = kubeconfig.render(
            cluster=f"warmgraph-{layout.name}",
            user=user,
            server=f"https://{address}:{ports['apiserver']}",
            pki=layout.pki,
            certificate=name,
        )
        write_atomically(path, text, mode=0o600)
    write_atomically(layout.etc / "audit.json", json.dumps(audit_policy(), indent=1))
    if full:
        write_node(layout)


def write_node(layout: Layout) -> None:
    pki, etc = layout.pki, layout.etc
    certificates.ensure_certificate(
        pki, "kubelet-server", common_name=NODE_NAME, hosts=[NODE_NAME, network.NODE_ADDRESS]
    )
    certificates.ensure_certificate(
        pki, "apiserver-kubelet", common_name="kube-apiserver", group="system:masters"
    )
    texts = {
        etc / "kubelet.json": json.dumps(kubelet(layout), indent=1),
        etc / "registry.json": json.dumps(registry(layout), indent=1),
        etc / "containerd.toml": containerd(layout),
        etc / "Corefile": corefile(layout),
        # Pods get the cluster's DNS even with dnsPolicy Default: there is no other here.
        etc / "resolv.conf": f"nameserver {network.NODE_ADDRESS}\n",
        etc / "cni" / "10-devcluster.conflist": network.cni_config(layout),
        etc / "certs.d" / REGISTRY / "hosts.toml": registry_hosts(),
    }
    for path, text in texts.items():
        write_atomically(path, text)


def audit_policy() -> Any:
    """Who wrote what, without bodies: tests count an operator's writes in it."""
    writes = ["create", "update", "patch", "delete", "deletecollection"]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "verbs": writes}, {"level": "None"}],
    }


def kubelet(layout: Layout) -> Any:
    pki = layout.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet-server.key",
        "readOnlyPort": 0,
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        # systemd is not always there, and cgroup v1 may be all there is.
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        # A lower score than the parent's needs CAP_SYS_RESOURCE.
        "oomScoreAdj": 0,
        "clusterDNS": [network.NODE_ADDRESS],
        "clusterDomain": network.CLUSTER_DOMAIN,
        "resolvConf": f"{layout.etc}/resolv.conf",
        "podLogsDir": f"{layout.home}/pod-logs",
        "volumePluginDir": f"{layout.home}/kubelet/volume-plugins",
        "serializeImagePulls": False,
        # Images are dear here: gigabytes that came from this machine in the first place.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "memory.available": "100Mi",
        },
    }


def registry(layout: Layout) -> Any:
    return {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": f"{layout.images}/registry"},
            "delete": {"enabled": True},
            "cache": {"blobdescriptor": "inmemory"},
        },
        "http": {"addr": f"{LOOPBACK}:{REGISTRY_PORT}"},
    }


def registry_hosts() -> str:
    url = f"http://{LOOPBACK}:{REGISTRY_PORT}"
    return f'server = "{url}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'


def containerd(layout: Layout) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
root = "{layout.images}/containerd"
state = "{layout.containerd_state}"
[grpc]
  address = "{layout.containerd_socket}"
[{cri}]
  sandbox_image = "{artifacts.PAUSE_IMAGE}"
  # A lower OOM score than the parent's needs CAP_SYS_RESOURCE; without this, runc fails with
  # "can't get final child's PID from pipe: EOF" where that is missing.
  restrict_oom_score_adj = true
  # So that removing the cluster's folder removes the pods' network namespaces too.
  netns_mounts_under_state_dir = true
  [{cri}.containerd]
    # The registry keeps the layers; a second compressed copy would only fill the disk.
    discard_unpacked_layers = true
  [{cri}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{layout.etc}/cni"
  [{cri}.registry]
    config_path = "{layout.etc}/certs.d"
"""


def corefile(layout: Layout) -> str:
    zones = f"{network.CLUSTER_DOMAIN} in-addr.arpa ip6.arpa"
    return f"""\
{zones} {{
  bind {network.NODE_ADDRESS}
  errors
  kubernetes {zones} {{
    kubeconfig {layout.etc}/coredns.kubeconfig warmgraph-{layout.name}
    ttl 5
  }}
}}
# Nothing leaves the machine: every other name is answered at once, with "no such name". A block of
# its own, because `template` would come before `kubernetes` in the same one.
. {{
  bind {network.NODE_ADDRESS}
  errors
  template ANY ANY . {{
    rcode NXDOMAIN
  }}
}}
"""
