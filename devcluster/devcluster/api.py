"""For tests and scripts: a control plane of one's own, or the machine's one full cluster.

with ControlPlane() as plane:
    run_against(plane.kubeconfig)

cluster = Cluster.ensure(fake_gpus=2)
image = cluster.load("localhost/warmgraph-engine:dev")
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from devcluster import cluster, images
from devcluster import record as records
from devcluster.components import REGISTRY
from devcluster.paths import Layout, state_root
from devcluster.process import alive, identify
from devcluster.status import Status, status

DEFAULT_NAME = "default"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Running:
    """A cluster that is up."""

    layout: Layout

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    @property
    def audit_log(self) -> Path:
        """One JSON line per write request, to count who wrote what."""
        return self.layout.audit_log

    @property
    def variables(self) -> dict[str, str]:
        """What to set for kubectl, helm and programs that use them to work on this cluster."""
        return {
            "PATH": f"{self.layout.bin}:{os.environ.get('PATH', os.defpath)}",
            "KUBECONFIG": str(self.kubeconfig),
            "WARMGRAPH_REGISTRY": REGISTRY,
        }

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with those variables."""
        return {**os.environ, **self.variables}

    def kubectl(
        self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60
    ) -> str:
        """Runs kubectl and returns its output; its failure is a CalledProcessError with both."""
        finished = subprocess.run(
            [str(self.layout.bin / "kubectl"), *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
        if finished.returncode != 0:
            error = subprocess.CalledProcessError(
                finished.returncode, finished.args, finished.stdout, finished.stderr
            )
            error.add_note(finished.stderr)
            raise error
        return finished.stdout

    def status(self) -> Status:
        return status(self.layout)


class Cluster(Running):
    """The full node that this machine's tests and the demo share."""

    registry = REGISTRY

    @classmethod
    def ensure(cls, *, name: str = DEFAULT_NAME, fake_gpus: int | None = None) -> Cluster:
        """Brings it up or repairs it; a second call finds nothing to do."""
        layout = Layout.of(name)
        cluster.up(layout, full=True, fake_gpus=fake_gpus)
        return cls(layout)

    def load(self, image: str) -> str:
        """Makes an image of buildah's storage usable by pods; returns the name they use."""
        return images.load(self.layout, image)

    def down(self, *, purge: bool = False) -> None:
        cluster.down(self.layout, purge=purge)


class ControlPlane(contextlib.AbstractContextManager[Running]):
    """An API server of one's own, without a node, for as long as the context lasts.

    Any number may run side by side. `extras` adds "controller-manager" (namespaces end, owner
    references are followed, service accounts exist) and "scheduler".
    """

    def __init__(self, *, extras: Sequence[str] = (), name: str | None = None) -> None:
        self.extras = list(extras)
        self.layout = Layout.of(name or f"test-{os.getpid()}-{next(_numbers)}")

    def __enter__(self) -> Running:
        sweep()
        owner = identify(os.getpid())
        try:
            cluster.up(self.layout, full=False, extras=self.extras, owner=owner)
        except BaseException:
            cluster.down(self.layout)
            raise
        return Running(self.layout)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        cluster.down(self.layout)


def sweep() -> None:
    """Removes the control planes of test processes that were killed before they could."""
    for file in state_root().glob("*/cluster.json"):
        record = records.load(file)
        if record is not None and record.owner is not None and not alive(record.owner):
            cluster.down(Layout(file.parent))
