"""Pods of the images, as strict as a cluster may be: restricted profile, a random user id, nothing
to write to but /tmp."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from demo.environment import prepare
from demo.kube import Cluster

NAMESPACE = "warmgraph-test-images"
# In nobody's /etc/passwd, as OpenShift gives them.
RANDOM_USER = 1_000_730_000
# Pulling gigabytes of torch, where the node has not got them yet.
START_SECONDS = 540


@dataclass(frozen=True)
class Ended:
    succeeded: bool
    output: str


@dataclass(frozen=True)
class Pods:
    cluster: Cluster

    def run(self, name: str, image: str, **container: Any) -> Ended:
        """Runs one container to its end; `container` is its command and whatever else."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": RANDOM_USER,
                    "runAsGroup": RANDOM_USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "main",
                        "image": image,
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                        # Without a share of its own a pod starves beside a busy one.
                        "resources": {"requests": {"cpu": "200m"}},
                        **container,
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        }
        self._kubectl("create", "-f", "-", stdin=json.dumps(pod))
        phase = self._wait(name)
        output = self._kubectl("logs", name)
        self._kubectl("delete", "pod", name, "--wait=false")
        return Ended(phase == "Succeeded", output)

    def _wait(self, name: str) -> str:
        end = time.monotonic() + START_SECONDS
        phase = ""
        while phase not in ("Succeeded", "Failed"):
            assert time.monotonic() < end, self._kubectl("describe", "pod", name)
            time.sleep(0.5)
            phase = self._kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}")
        return phase

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, "--namespace", NAMESPACE, stdin=stdin)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return prepare()


@pytest.fixture(scope="session")
def pods(cluster: Cluster) -> Iterator[Pods]:
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl(
        "label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"
    )
    yield Pods(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
