"""Removes what the demo made, in the order that leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys

from demo.console import say, step
from demo.environment import has_own_cluster
from demo.install import NAMESPACE, RELEASE, SYSTEM_NAMESPACE
from demo.kube import ROOT
from warmgraph_api import labels


def down() -> None:
    if has_own_cluster():
        _remove_from_given_cluster()
        return
    with step("Stop the local cluster and remove its data (built programs and images stay cached)"):
        say("what a demo left on a cluster of yours goes with `make demo-down KUBECONFIG=…`")
        subprocess.run([sys.executable, "-m", "devcluster", "down"], cwd=ROOT, check=True)


def _remove_from_given_cluster() -> None:
    """Deployments go first, while the operator that owns their objects still runs."""
    with step(f"Remove namespace {NAMESPACE}, the release {RELEASE} and its resource type"):
        for command in (
            ("kubectl", "delete", "infd", "--all", "-n", NAMESPACE, "--ignore-not-found"),
            ("kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found"),
            ("helm", "uninstall", RELEASE, "-n", SYSTEM_NAMESPACE, "--ignore-not-found"),
            ("kubectl", "delete", "namespace", SYSTEM_NAMESPACE, "--ignore-not-found"),
            (
                "kubectl",
                "delete",
                "crd",
                f"{labels.PLURAL}.{labels.GROUP}",
                "--ignore-not-found",
            ),
        ):
            say(" ".join(command))
            subprocess.run(command, check=False)
