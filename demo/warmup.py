"""Prints a warmup as it happens: every stage and every bucket of every new pod."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

from demo.console import fail, say
from demo.kube import Cluster
from warmgraph_api import labels, ports


def follow(
    cluster: Cluster,
    *,
    namespace: str,
    name: str,
    done: Callable[[], bool],
    timeout_seconds: float,
    hint: str,
) -> None:
    """Until `done`, print what the pods of a deployment report, once each."""
    began = time.monotonic()
    seen: set[str] = set()
    while not done():
        if time.monotonic() - began > timeout_seconds:
            fail(f"not ready within {timeout_seconds:.0f} s. Look at: {hint}")
        # Old pods drain after new ones are ready: asked first and told last, they do so here too.
        oldest_first = _pods(cluster, namespace, name)
        news = [_news(pod, _state(cluster, namespace, pod)) for pod in oldest_first]
        for line in chain.from_iterable(reversed(news)):
            if line not in seen:
                seen.add(line)
                say(f"{time.monotonic() - began:6.1f} s  {line}")
        time.sleep(0.3)


def _pods(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """Their names, the oldest first."""
    selector = f"{labels.DEPLOYMENT}={name}"
    found = cluster.get("pods", "-n", namespace, "-l", selector)
    pods = [pod["metadata"] for pod in found.get("items", [])]
    return [pod["name"] for pod in sorted(pods, key=lambda pod: pod["creationTimestamp"])]


def _state(cluster: Cluster, namespace: str, pod: str) -> dict[str, Any]:
    """The sidecar's answer through the API server's proxy; empty until it listens."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{ports.SIDECAR_PORT}/proxy/warmup"
    text = cluster.kubectl("get", "--raw", path, check=False)
    state: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
    return state


def _news(pod: str, state: dict[str, Any]) -> list[str]:
    """Everything the state says, a line each; the caller prints the lines that are new."""
    report = state.get("report") or {}
    short = pod.rsplit("-", 1)[-1]
    lines = [f"{short}  {report['stage']}"] if report else []
    cache = report.get("cache", {})
    if cache.get("result", "Pending") != "Pending":
        lines.append(f"{short}  graph cache: {cache['result']}  {cache['message']}".rstrip())
    lines += [
        f"{short}  {bucket['mode']:5} {bucket['kind']:7} {bucket['size']:4}  "
        f"{bucket['state']} in {bucket['seconds']:.2f} s {bucket['reason']}".rstrip()
        for bucket in report.get("buckets", [])
        if bucket["state"] not in ("Pending", "Capturing")
    ]
    if state.get("ready"):
        lines.append(f"{short}  pod ready")
    return lines
