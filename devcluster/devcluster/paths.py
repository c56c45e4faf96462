"""Where things live: one folder per cluster, one cache for what is built once per machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevclusterError

# Debian's own programs only: a containerd shim of another version found first on a developer's
# PATH breaks this containerd.
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"

# A Unix socket's path has at most 107 bytes; the longest one below a cluster's folder,
# kubelet/device-plugins/kubelet.sock, takes 36 of them.
LONGEST_HOME = 70

SOURCES = Path(__file__).resolve().parent.parent


def cache_root() -> Path:
    """Built binaries; `WARMGRAPH_CACHE` moves it."""
    if chosen := os.environ.get("WARMGRAPH_CACHE"):
        return Path(chosen).absolute() / "devcluster"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "warmgraph" / "devcluster"


def state_root() -> Path:
    """Clusters' data; `WARMGRAPH_STATE` moves it. A control plane needs no root, hence two."""
    if chosen := os.environ.get("WARMGRAPH_STATE"):
        return Path(chosen).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/warmgraph-devcluster")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "warmgraph-devcluster"


@dataclass(frozen=True)
class Layout:
    """The files of one cluster."""

    home: Path

    @classmethod
    def of(cls, name: str) -> Layout:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
            raise DevclusterError(
                f"{name!r} is no cluster name: use lower-case letters, digits and dashes, up to 31"
            )
        return cls(state_root() / name)

    def check_length(self) -> None:
        """A node has sockets in its folder; a control plane has none."""
        if len(str(self.home)) > LONGEST_HOME:
            raise DevclusterError(
                f"{self.home} is too long for the sockets below it:"
                f" set WARMGRAPH_STATE so that it has at most {LONGEST_HOME} characters"
            )

    @property
    def name(self) -> str:
        return self.home.name

    @property
    def record(self) -> Path:
        return self.home / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    @property
    def lock(self) -> Path:
        """Beside the cluster's folder, which `down` removes."""
        return self.home.with_name(f".{self.name}.lock")

    @property
    def bin(self) -> Path:
        """kubectl and helm only, safe to put first on a PATH."""
        return self.home / "bin"

    @property
    def etc(self) -> Path:
        return self.home / "etc"

    @property
    def pki(self) -> Path:
        return self.home / "pki"

    @property
    def volumes(self) -> Path:
        """The folders behind persistent volumes."""
        return self.home / "volumes"

    @property
    def images(self) -> Path:
        """The registry's and containerd's data, which outlive a cluster: copying gigabytes of
        layers again at every `up` would cost minutes."""
        return self.home / "images"

    @property
    def containerd_socket(self) -> Path:
        return self.home / "containerd.sock"

    @property
    def containerd_state(self) -> Path:
        return self.home / "containerd"

    @property
    def audit_log(self) -> Path:
        """One JSON line per write request that the API server served."""
        return self.log("audit")

    def log(self, component: str) -> Path:
        return self.home / "log" / f"{component}.log"
