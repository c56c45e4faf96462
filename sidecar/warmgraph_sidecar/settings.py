"""What the sidecar is told, as flags: `kubectl describe pod` shows every one of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warmgraph_api import ports
from warmgraph_api.resource import OnCaptureFailure, WarmupPolicy
from warmgraph_sidecar.verdict import Policy


@dataclass(frozen=True, kw_only=True)
class Settings:
    host: str
    """Address to listen on; empty means every one, IPv4 and IPv6."""
    port: int
    report_socket: Path
    policy: Policy
    drain_timeout_seconds: float
    drain_settle_seconds: float


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Settings from the command line; exits with a usage message on a bad one."""
    parser = argparse.ArgumentParser(
        prog="warmgraph-sidecar",
        description="Readiness, liveness, drain, warmup report and metrics of one model pod.",
    )
    add = parser.add_argument
    add("--host", default="", help="address to listen on (every address)")
    add("--port", type=int, default=ports.SIDECAR_PORT, help="HTTP port (%(default)s)")
    add(
        "--report-socket",
        type=Path,
        default=Path(ports.REPORT_SOCKET),
        help="Unix socket on which the engine reports (%(default)s)",
    )
    add(
        "--policy",
        type=WarmupPolicy,
        choices=list(WarmupPolicy),
        default=WarmupPolicy.REQUIRE_EAGER,
        help="what readiness waits for (%(default)s)",
    )
    add(
        "--on-capture-failure",
        type=OnCaptureFailure,
        choices=list(OnCaptureFailure),
        default=OnCaptureFailure.FALLBACK,
        help="whether a pod with a failed eager bucket may become ready (%(default)s)",
    )
    add(
        "--stall-timeout-seconds",
        type=_positive,
        default=300.0,
        help="longest time that a warmup may stand still (%(default)s)",
    )
    add(
        "--known-answer-check",
        type=_boolean,
        default=True,
        metavar="true|false",
        help="whether readiness waits for the engine's known-answer check (true)",
    )
    add(
        "--drain-timeout-seconds",
        type=_not_negative,
        default=110.0,  # the resource's default grace period of 120 s less a margin to stop in
        help="longest time that a drain may take (%(default)s)",
    )
    add(
        "--drain-settle-seconds",
        type=_not_negative,
        default=5.0,  # kube-proxy follows in about 1 s; 5 s covers a loaded node and gateways
        help="how long to go on serving once unready, so that every proxy follows (%(default)s)",
    )
    values = parser.parse_args(arguments)
    return Settings(
        host=values.host,
        port=values.port,
        report_socket=values.report_socket,
        policy=Policy(
            warmup=values.policy,
            on_capture_failure=values.on_capture_failure,
            known_answer_check=values.known_answer_check,
            stall_timeout_seconds=values.stall_timeout_seconds,
        ),
        drain_timeout_seconds=values.drain_timeout_seconds,
        drain_settle_seconds=values.drain_settle_seconds,
    )


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false") from None


def _not_negative(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value
