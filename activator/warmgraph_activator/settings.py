"""What the activator is told, as flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from warmgraph_api import ports


@dataclass(frozen=True, kw_only=True)
class Settings:
    host: str = ""
    """Address to listen on, for every port; empty means every one, IPv4 and IPv6."""
    admin_port: int = ports.ACTIVATOR_ADMIN_PORT
    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; empty means all."""
    kubeconfig: str = ""
    """File to reach the API server with; empty means the pod's service account, or what kubectl
    would use outside a cluster."""
    engine_port: int = ports.ENGINE_PORT
    sidecar_port: int = ports.SIDECAR_PORT
    settle_seconds: float = 5.0
    """After SIGTERM: go on listening, unready, until the operator (2 s) and every proxy (about
    1 s) have followed."""
    hold_seconds: float = 100.0
    """After SIGTERM: held requests that cannot be forwarded by then get a 503. Longer than a start
    with stored graphs takes, so that a rollout of the activators fails nobody."""
    forward_seconds: float = 100.0
    """After SIGTERM: answers on their way may take this long."""


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Settings from the command line; exits with a usage message on a bad one."""
    parser = argparse.ArgumentParser(
        prog="warmgraph-activator",
        description="Holds requests for deployments at zero replicas, wakes them, hands over.",
    )
    add = parser.add_argument
    default = Settings()
    add("--host", default=default.host, help="address to listen on (every address)")
    add("--admin-port", type=int, default=default.admin_port, help="admin port (%(default)s)")
    add(
        "--namespaces",
        type=_names,
        default=default.namespaces,
        metavar="A,B",
        help="namespaces to serve (all)",
    )
    add("--kubeconfig", default=default.kubeconfig, help="how to reach the API server")
    add(
        "--engine-port",
        type=int,
        default=default.engine_port,
        help="port of the engine in model pods (%(default)s)",
    )
    add(
        "--sidecar-port",
        type=int,
        default=default.sidecar_port,
        help="port of the sidecar in model pods (%(default)s)",
    )
    add(
        "--settle-seconds",
        type=_not_negative,
        default=default.settle_seconds,
        help="after SIGTERM: go on listening this long (%(default)s)",
    )
    add(
        "--hold-seconds",
        type=_not_negative,
        default=default.hold_seconds,
        help="after SIGTERM: answer held requests with 503 after this long (%(default)s)",
    )
    add(
        "--forward-seconds",
        type=_not_negative,
        default=default.forward_seconds,
        help="after SIGTERM: let forwarded requests take this long (%(default)s)",
    )
    return Settings(**vars(parser.parse_args(arguments)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _not_negative(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value
