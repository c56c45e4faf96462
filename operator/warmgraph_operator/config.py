"""Settings of the operator process: each has one flag, one variable, one default."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warmgraph_api import labels, ports

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, kw_only=True)
class Config:
    """See README.md for what each setting does."""

    engine_image: str
    sidecar_image: str
    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; empty for all."""
    image_pull_policy: str = "IfNotPresent"
    activator_namespace: str = ""
    """Empty: there are no activators, nothing answers at zero replicas."""
    activator_selector: str = f"{labels.COMPONENT}=activator"
    pod_fs_group: int | None = 65532
    """The usual non-root group of minimal images; None leaves it to the platform."""
    resync_seconds: float = 30.0
    """Two passes of one resource are never further apart, so that what a watch missed is noticed
    within a minute."""
    leader_elect: bool = False
    lease_namespace: str = ""
    host: str = "0.0.0.0"  # noqa: S104 - a pod's probes and Prometheus come from outside of it
    port: int = ports.OPERATOR_PORT
    log_format: str = "json"
    log_level: str = "info"


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Config:
    """Settings from flags, else variables, else defaults. Exits with a message on a bad one."""

    def default(variable: str, otherwise: str = "") -> str:
        return environment.get(f"WARMGRAPH_{variable}", otherwise)

    parser = argparse.ArgumentParser(
        prog="warmgraph-operator",
        description="Turns InferenceDeployments into Kubernetes objects.",
    )
    add = parser.add_argument
    add("--namespace", action="append", metavar="NAME", help="namespace to serve; default all")
    add("--engine-image", default=default("ENGINE_IMAGE"), help="where engine.image is empty")
    add("--sidecar-image", default=default("SIDECAR_IMAGE"))
    add(
        "--image-pull-policy",
        default=default("IMAGE_PULL_POLICY", Config.image_pull_policy),
        choices=["Always", "IfNotPresent", "Never"],
    )
    add(
        "--activator-namespace",
        default=default("ACTIVATOR_NAMESPACE"),
        help="where activators run; empty: none",
    )
    add(
        "--activator-selector",
        default=default("ACTIVATOR_SELECTOR", Config.activator_selector),
        help="label selector of activator pods",
    )
    add(
        "--pod-fs-group",
        default=default("POD_FS_GROUP", str(Config.pod_fs_group)),
        help="fsGroup of model pods; empty leaves it to the platform",
    )
    add(
        "--resync-seconds",
        type=float,
        default=float(default("RESYNC_SECONDS", str(Config.resync_seconds))),
    )
    add(
        "--leader-elect",
        action="store_true",
        default=default("LEADER_ELECT", "false").lower() == "true",
        help="hold a Lease while working",
    )
    add("--lease-namespace", default=default("LEASE_NAMESPACE"))
    add("--listen-host", default=default("HOST", Config.host))
    add("--port", type=int, default=int(default("PORT", str(Config.port))))
    add(
        "--log-format",
        default=default("LOG_FORMAT", Config.log_format),
        choices=["json", "text"],
    )
    add(
        "--log-level",
        default=default("LOG_LEVEL", Config.log_level),
        choices=["debug", "info", "warning", "error"],
    )
    flags = parser.parse_args(arguments)
    for name in ("engine_image", "sidecar_image"):
        if not getattr(flags, name):
            parser.error(f"--{name.replace('_', '-')} is required")
    if flags.pod_fs_group and not flags.pod_fs_group.isdigit():
        parser.error(f"--pod-fs-group must be a group id or empty, not {flags.pod_fs_group!r}")
    if not 1 <= flags.resync_seconds <= 3600:
        parser.error("--resync-seconds must be between 1 and 3600")
    from_variable = [name for name in default("NAMESPACES").split(",") if name]
    return Config(
        engine_image=flags.engine_image,
        sidecar_image=flags.sidecar_image,
        namespaces=tuple(flags.namespace or from_variable),
        image_pull_policy=flags.image_pull_policy,
        activator_namespace=flags.activator_namespace,
        activator_selector=flags.activator_selector,
        pod_fs_group=int(flags.pod_fs_group) if flags.pod_fs_group else None,
        resync_seconds=flags.resync_seconds,
        leader_elect=flags.leader_elect,
        lease_namespace=flags.lease_namespace or _own_namespace(),
        host=flags.listen_host,
        port=flags.port,
        log_format=flags.log_format,
        log_level=flags.log_level,
    )


def _own_namespace() -> str:
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    except OSError:
        return "default"
