"""The objects that a usable cluster has from the start: DNS, storage, and the roles they need."""

from __future__ import annotations

from typing import Any

from devcluster import network
from devcluster.client import Client
from devcluster.components import NODE_NAME

STORAGE_CLASS = "local"
PROVISIONER = "warmgraph.dev/local"

RBAC = "rbac.authorization.k8s.io"


def role(name: str, rules: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """A cluster role, given to the devcluster component of the same name."""
    full_name = f"devcluster:{name}"
    base = f"/apis/{RBAC}/v1"
    return [
        (
            f"{base}/clusterroles/{full_name}",
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": full_name},
                "rules": rules,
            },
        ),
        (
            f"{base}/clusterrolebindings/{full_name}",
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": full_name},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": full_name},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": full_name}],
            },
        ),
    ]


def rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


READ = ["get", "list", "watch"]


def objects() -> list[tuple[str, Any]]:
    """Each object with its path in the API."""
    dns = "/api/v1/namespaces/kube-system/services/kube-dns"
    slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns-node"
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    ports.append({"name": "dns-tcp", "port": 53, "protocol": "TCP"})
    return [
        *role(
            "coredns",
            [
                rule("", ["services", "pods", "namespaces"], READ),
                rule("discovery.k8s.io", ["endpointslices"], READ),
            ],
        ),
        *role(
            "agent",
            [
                rule("", ["persistentvolumes"], [*READ, "create", "patch", "delete"]),
                rule("", ["persistentvolumeclaims", "nodes"], READ),
                rule("", ["nodes/status"], ["patch"]),
                rule("storage.k8s.io", ["storageclasses"], READ),
            ],
        ),
        (
            f"/apis/storage.k8s.io/v1/storageclasses/{STORAGE_CLASS}",
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {
                    "name": STORAGE_CLASS,
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "provisioner": PROVISIONER,
                "reclaimPolicy": "Delete",
                # As most clouds do: a program that waits for a claim to be bound before it makes
                # the pod would wait for ever, and should do so here first.
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        ),
        # CoreDNS is a process of the node; this Service gives it its usual name and address.
        (
            dns,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "kube-dns", "labels": {"k8s-app": "kube-dns"}},
                "spec": {"clusterIP": network.DNS_SERVICE_ADDRESS, "ports": ports},
            },
        ),
        (
            slices,
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "kube-dns-node",
                    "labels": {"kubernetes.io/service-name": "kube-dns"},
                },
                "addressType": "IPv4",
                "endpoints": [
                    {
                        "addresses": [network.NODE_ADDRESS],
                        "conditions": {"ready": True},
                        "nodeName": NODE_NAME,
                    }
                ],
                "ports": ports,
            },
        ),
    ]


def apply(client: Client) -> None:
    for path, body in objects():
        client.apply(path, body)
