"""containerd's images, through its own command."""

from __future__ import annotations

from pathlib import Path

from devcluster.network import run
from devcluster.paths import Layout
from devcluster.pods import NAMESPACE


def ctr(layout: Layout, *arguments: str) -> str:
    return run("ctr", "-a", str(layout.containerd_socket), "-n", NAMESPACE, *arguments)


def ensure_imported(layout: Layout, *, image: str, archive: Path) -> None:
    if image not in ctr(layout, "images", "list", "-q").split():
        ctr(layout, "images", "import", str(archive))


def forget(layout: Layout, image: str) -> None:
    """Makes the next pod fetch the image anew: a tag may by now mean another one."""
    if image in ctr(layout, "images", "list", "-q").split():
        ctr(layout, "images", "remove", image)
