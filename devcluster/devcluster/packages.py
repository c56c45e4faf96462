"""Debian packages, installed only when a program that we need is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from devcluster.console import say, step
from devcluster.errors import DevclusterError, tail
from devcluster.paths import SYSTEM_PATH, cache_root

CONTROL_PLANE: Mapping[str, str] = {"openssl": "openssl"}

NODE: Mapping[str, str] = {
    **CONTROL_PLANE,
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "sysctl": "procps",
    "socat": "socat",  # kubectl port-forward
    "docker-registry": "docker-registry",
    "buildah": "buildah",
    "debootstrap": "debootstrap",  # base images where no registry can be reached
}

PAUSE_BUILD: Mapping[str, str] = {"gcc": "gcc", "/usr/include/stdio.h": "libc6-dev"}


def find(program: str) -> str | None:
    """The system's own copy of a program."""
    if program.startswith("/"):
        return program if Path(program).exists() else None
    return shutil.which(program, path=SYSTEM_PATH)


def program(name: str) -> str:
    """Like `find`, for a program that `ensure` has already seen to."""
    found = find(name)
    if found is None:
        raise DevclusterError(f"{name} is not installed; `devcluster up` installs it")
    return found


def missing(wanted: Mapping[str, str]) -> list[str]:
    """The packages of those programs that are not there."""
    return sorted({package for name, package in wanted.items() if find(name) is None})


def ensure(wanted: Mapping[str, str]) -> None:
    packages = missing(wanted)
    if not packages:
        return
    command = f"apt-get install -y --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0 or find("apt-get") is None:
        raise DevclusterError(f"missing programs; as root on Debian: {command}")
    log = cache_root() / "apt.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"  installing Debian packages: {' '.join(packages)}")
    with step("packages installed"), log.open("w") as output:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for part in ("apt-get update", command):
            # A mirror that hangs must not hang us: 10 minutes are plenty for 200 MB.
            finished = subprocess.run(
                part.split(),
                stdout=output,
                stderr=output,
                env=environment,
                timeout=600,
                check=False,
            )
            if finished.returncode != 0:
                raise DevclusterError(f"`{part}` failed:\n{tail(log)}")
