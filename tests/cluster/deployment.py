"""One InferenceDeployment under test, seen through kubectl and through its Service."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from demo.kube import ROOT, Cluster, wait_until
from warmgraph_api import labels, ports

EXAMPLE = ROOT / "examples" / "01-smollm2.yaml"
LOAD = (Path(__file__).parent / "load.py").read_text()

START_TIMEOUT_SECONDS = 240
"""A start takes 10 to 20 s alone, several times that beside the load on two cores."""

LOAD_SECONDS = 600
"""No load lasts longer, also if its test hangs."""


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, nested objects merged, everything else replaced."""
    result = deepcopy(base)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    complete: bool
    began: float
    seconds: float
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    cluster: Cluster
    namespace: str
    name: str

    @property
    def url(self) -> str:
        return f"http://{self.name}.{self.namespace}"

    # --- the resource ---------------------------------------------------------------------

    def apply(self, changes: dict[str, Any]) -> None:
        """Apply the example with this name and `changes` to its spec."""
        manifest = yaml.safe_load(EXAMPLE.read_text())
        manifest["metadata"] = {"name": self.name}
        manifest["spec"] = merged(manifest["spec"], changes)
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def patch(self, spec: dict[str, Any]) -> None:
        self.kubectl("patch", "infd", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", f"infd/{self.name}", f"--replicas={replicas}")

    def delete(self) -> None:
        self.kubectl("delete", "infd", self.name, "--ignore-not-found", "--timeout=120s")

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        return self.cluster.kubectl(*arguments, "-n", self.namespace, stdin=stdin, check=check)

    def get(self) -> dict[str, Any]:
        return self.cluster.get("infd", self.name, "-n", self.namespace)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get().get("status", {})
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition that was observed for the spec as it is now; empty otherwise."""
        resource = self.get()
        generation = resource.get("metadata", {}).get("generation")
        conditions = resource.get("status", {}).get("conditions", [])
        return next(
            (
                condition
                for condition in conditions
                if condition["type"] == kind and condition["observedGeneration"] == generation
            ),
            {},
        )

    def wait(
        self, kind: str, *, status: str = "True", reason: str = "", timeout: float = 0
    ) -> None:
        """Until a condition says so for the current spec."""

        def holds() -> bool:
            condition = self.condition(kind)
            return condition.get("status") == status and reason in ("", condition.get("reason"))

        wait_until(
            holds,
            timeout_seconds=timeout or START_TIMEOUT_SECONDS,
            what=f"{kind}={status} {reason} of {self.name} (now {self.status.get('conditions')})",
            hint=f"kubectl describe infd {self.name} -n {self.namespace}",
        )

    # --- its pods -------------------------------------------------------------------------

    def pods(self) -> list[dict[str, Any]]:
        """Pods that are not on their way out."""
        selector = f"{labels.DEPLOYMENT}={self.name}"
        items = self.cluster.get("pods", "-n", self.namespace, "-l", selector).get("items", [])
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def wait_pods(self, count: int) -> list[dict[str, Any]]:
        """Until that many pods exist and all of them are ready."""

        def ready() -> bool:
            pods = self.pods()
            return len(pods) == count and all(map(is_ready, pods))

        wait_until(
            ready,
            timeout_seconds=START_TIMEOUT_SECONDS,
            what=f"{count} ready pods of {self.name}",
            hint=f"kubectl get pods -n {self.namespace}",
        )
        return self.pods()

    def awake(self) -> dict[str, Any]:
        """Its one ready pod, whatever an earlier test left."""
        self.scale(1)
        (pod,) = self.wait_pods(1)
        return pod

    def pod_state(self, pod: dict[str, Any]) -> dict[str, Any]:
        """What a pod's sidecar answers to GET /warmup."""
        found: dict[str, Any] = json.loads(self.proxied(pod, ports.SIDECAR_PORT, "warmup"))
        return found

    def proxied(self, pod: dict[str, Any], port: int, path: str) -> str:
        """A GET on a pod's port, through the API server."""
        name = pod["metadata"]["name"]
        return self.cluster.kubectl(
            "get", "--raw", f"/api/v1/namespaces/{self.namespace}/pods/{name}:{port}/proxy/{path}"
        )

    def requests_refused_while_warming(self, pod: dict[str, Any]) -> float:
        """How many requests reached a pod's engine before it served."""
        text = self.proxied(pod, ports.ENGINE_PORT, "metrics")
        wanted = 'warmgraph_requests_refused_total{reason="warming"}'
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(wanted))

    # --- its clients ----------------------------------------------------------------------

    def start_load(self, *, callers: int) -> subprocess.Popen[str]:
        """Callers in the client pod that ask through the Service, until `answers` ends them."""
        return self.cluster.start(
            "kubectl", "exec", "-i", "client", "-n", self.namespace, "--",
            "python3", "-c", LOAD, self.url, "smollm2", str(callers), str(LOAD_SECONDS),
        )  # fmt: skip

    def answers(self, load: subprocess.Popen[str]) -> list[Answer]:
        """End a load; every request it sent, in the order they ended."""
        output, _ = load.communicate(timeout=300)
        assert load.returncode == 0, output[-2000:]
        return [Answer(**json.loads(line)) for line in output.splitlines()]


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def failures(answers: list[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.status != 200 or not answer.complete]
