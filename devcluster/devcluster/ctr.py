"""containerd's images, through its own command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from devcluster import artifacts
from devcluster.errors import DevclusterError
from devcluster.network import run
from devcluster.paths import Layout
from devcluster.pods import NAMESPACE

# Unpacking five gigabytes takes a minute or two.
PULL_TIMEOUT_SECONDS = 900


def ctr(layout: Layout, *arguments: str) -> str:
    return run("ctr", "-a", str(layout.containerd_socket), "-n", NAMESPACE, *arguments)


def ensure_imported(layout: Layout, *, image: str, archive: Path) -> None:
    if image not in ctr(layout, "images", "list", "-q").split():
        ctr(layout, "images", "import", str(archive))


def pull(layout: Layout, image: str) -> None:
    """Fetches what a tag means now, so that pods which use it start at once.

    As the kubelet would, because `ctr images pull` keeps a second copy of every layer.
    """
    puller = artifacts.KUBERNETES.folder / "cri-pull"
    command = [str(puller), f"unix://{layout.containerd_socket}", image]
    finished = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PULL_TIMEOUT_SECONDS
    )
    if finished.returncode != 0:
        raise DevclusterError(f"containerd could not pull {image}: {finished.stderr.strip()}")
