"""Ending what containerd started: pods outlive both the kubelet and containerd."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from devcluster.errors import DevclusterError
from devcluster.network import RULE_COMMENT, run
from devcluster.paths import Layout

NAMESPACE = "k8s.io"
"""containerd's own namespace for what Kubernetes runs."""

# containerd needs a moment to notice that tasks have ended and to remove their shims.
SETTLE_SECONDS = 5.0


def bundles(layout: Layout) -> list[Path]:
    tasks = layout.containerd_state / "io.containerd.runtime.v2.task" / NAMESPACE
    return list(tasks.iterdir()) if tasks.is_dir() else []


def first_process(bundle: Path) -> int | None:
    """The container's first process; None when its pid has meanwhile become another's."""
    try:
        pid = int((bundle / "init.pid").read_text())
        cgroups = Path(f"/proc/{pid}/cgroup").read_text()
    except (OSError, ValueError):
        return None
    return pid if bundle.name in cgroups else None


def shims(layout: Layout) -> Iterator[int]:
    """The processes between our containerd and its containers, known by our socket's path."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"containerd-shim" in words[0] and str(layout.containerd_socket).encode() in words:
                yield int(entry.name)


def end_all(layout: Layout) -> None:
    """Kills every container at once; the kubelet must be gone, or it would start them anew."""
    for bundle in bundles(layout):
        if (pid := first_process(bundle)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + SETTLE_SECONDS
    while any(shims(layout)) and time.monotonic() < deadline:
        time.sleep(0.1)


def end_shims(layout: Layout) -> None:
    """After containerd has ended: the shims that it left, and their sockets elsewhere."""
    for bundle in bundles(layout):
        with contextlib.suppress(OSError):
            address = (bundle / "address").read_text().strip().removeprefix("unix://")
            Path(address).unlink()
    for pid in list(shims(layout)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def mounts_below(folder: Path, mountinfo: str) -> list[str]:
    """Mount points at or below a folder, innermost first."""
    points = [line.split(" ")[4].replace("\\040", " ") for line in mountinfo.splitlines()]
    return [point for point in reversed(points) if Path(point).is_relative_to(folder)]


def unmount(folder: Path) -> None:
    for point in mounts_below(folder, Path("/proc/self/mountinfo").read_text()):
        run("umount", "--lazy", point)
    if left := mounts_below(folder, Path("/proc/self/mountinfo").read_text()):
        # What is mounted may be somebody's data: the folder must not be removed around it.
        raise DevclusterError(f"{left[0]} is still mounted; unmount it and repeat")


def remove_leftovers(layout: Layout) -> None:
    """What the kubelet and containerd leave outside the cluster's folder."""
    for cached in Path("/var/lib/cni").glob(f"*/{RULE_COMMENT}-*"):
        cached.unlink(missing_ok=True)
    logs = Path("/var/log/containers")
    for link in logs.iterdir() if logs.is_dir() else []:
        if link.is_symlink() and link.readlink().is_relative_to(layout.home):
            link.unlink()
    # Empty control groups only: rmdir refuses the others.
    for top in Path("/sys/fs/cgroup").glob("**/kubepods"):
        for path, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()
