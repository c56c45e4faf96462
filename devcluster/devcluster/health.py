"""One check per component: None when it does its work, else what is wrong."""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Callable
from contextlib import closing

from devcluster import network
from devcluster.client import Client
from devcluster.components import LOOPBACK, REGISTRY_PORT
from devcluster.paths import Layout

Check = Callable[[], str | None]


def http_ok(port: int, path: str) -> str | None:
    """Whether a loopback address answers 200."""
    with closing(http.client.HTTPConnection(LOOPBACK, port, timeout=3)) as connection:
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(200).decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return str(error) or repr(error)
    return None if response.status == 200 else f"{response.status} {body.strip()}"


def socket_open(layout: Layout) -> str | None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(3)
        try:
            connection.connect(str(layout.containerd_socket))
        except OSError as error:
            return str(error)
    return None


def dns_query(name: str) -> bytes:
    """A question for a name's IPv4 address (RFC 1035, section 4.1)."""
    header = struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0)
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return header + labels + b"\0" + struct.pack("!2H", 1, 1)


def resolves(name: str, address: str) -> str | None:
    """Whether the cluster's DNS gives this address for this name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect((network.NODE_ADDRESS, 53))
            connection.send(dns_query(name))
            answer = connection.recv(512)
        except OSError as error:
            return str(error)
    # One record of four bytes: the address is the end of the message.
    if answer[3] & 0x0F or answer[-4:] != socket.inet_aton(address):
        return f"{name} does not resolve to {address} yet"
    return None


def checks(layout: Layout, client: Client, ports: dict[str, int]) -> dict[str, Check]:
    """The checks by component. Those without one are well while they run."""
    kubernetes = f"kubernetes.default.svc.{network.CLUSTER_DOMAIN}"
    return {
        "etcd": lambda: http_ok(ports["etcd"], "/health"),
        "apiserver": client.ready,
        "registry": lambda: http_ok(REGISTRY_PORT, "/v2/"),
        "containerd": lambda: socket_open(layout),
        "kubelet": lambda: http_ok(10248, "/healthz"),
        "kube-proxy": lambda: http_ok(10256, "/healthz"),
        "coredns": lambda: resolves(kubernetes, network.KUBERNETES_SERVICE_ADDRESS),
    }
