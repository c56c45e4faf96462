"""What is built once per machine: Kubernetes, helm, CoreDNS and the pause image.

Each artifact has a folder in the cache, named by its version and a digest of what it is built
from. It is built beside its place and renamed into it, so a folder that exists is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from devcluster import gobuild, ociarchive, packages
from devcluster.console import say, step
from devcluster.errors import DevclusterError
from devcluster.paths import SOURCES, cache_root
from devcluster.record import locked

KUBERNETES_VERSION = "v1.37.2"
HELM_VERSION = "v4.3.1"
COREDNS_VERSION = "v1.14.7"
PAUSE_VERSION = "1"

KUBERNETES_PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "cri-pull",
)

# Without these the API server reports v0.0.0 and charts' kubeVersion checks fail.
VERSION_PACKAGE = "k8s.io/component-base/version"
KUBERNETES_LDFLAGS = (
    f"-s -w -X {VERSION_PACKAGE}.gitVersion={KUBERNETES_VERSION}"
    f" -X {VERSION_PACKAGE}.gitMajor=1 -X {VERSION_PACKAGE}.gitMinor=37"
)

HELM_LDFLAGS = f"-s -w -X helm.sh/helm/v4/internal/version.version={HELM_VERSION}"

PAUSE_IMAGE = f"localhost/pause:{PAUSE_VERSION}"


def build_kubernetes(into: Path) -> None:
    gobuild.run(
        f"Kubernetes {KUBERNETES_VERSION} (6 to 10 min on 2 cores, once per machine)",
        [
            "build",
            "-v",
            "-trimpath",
            "-ldflags",
            KUBERNETES_LDFLAGS,
            "-o",
            f"{into}/kubernetes",
            ".",
        ],
        cwd=SOURCES / "kubernetes",
        expected_packages=2150,
    )
    for name in KUBERNETES_PROGRAMS:
        (into / name).symlink_to("kubernetes")


def build_helm(into: Path) -> None:
    package = f"helm.sh/helm/v4/cmd/helm@{HELM_VERSION}"
    gobuild.run(
        f"helm {HELM_VERSION} (about 4 min)",
        ["install", "-v", "-trimpath", "-ldflags", HELM_LDFLAGS, package],
        cwd=into,
        expected_packages=1050,
        extra_environment={"GOBIN": str(into)},
    )


def build_coredns(into: Path) -> None:
    gobuild.run(
        f"CoreDNS {COREDNS_VERSION} (about 2 min)",
        ["build", "-v", "-trimpath", "-ldflags", "-s -w", "-o", f"{into}/coredns", "."],
        cwd=SOURCES / "coredns",
        expected_packages=780,
    )


def build_pause(into: Path) -> None:
    packages.ensure(packages.PAUSE_BUILD)
    compiler = packages.program("gcc")
    with step("pause image"):
        finished = subprocess.run(
            [
                compiler,
                "-static",
                "-Os",
                "-s",
                "-o",
                f"{into}/pause",
                SOURCES / "pause" / "pause.c",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if finished.returncode != 0:
            raise DevclusterError(f"pause: gcc failed:\n{finished.stderr}")
        ociarchive.write(into / "pause.tar", image=PAUSE_IMAGE, binary=into / "pause")


@dataclass(frozen=True)
class Artifact:
    name: str
    version: str
    sources: tuple[str, ...]
    """Files below devcluster/ that decide what is built."""
    recipe: str
    """What else decides it."""
    build: Callable[[Path], None]

    @property
    def folder(self) -> Path:
        return cache_root() / f"{self.name}-{self.version}-{self.digest}"

    @property
    def digest(self) -> str:
        digest = hashlib.sha256(self.recipe.encode())
        for source in self.sources:
            digest.update((SOURCES / source).read_bytes())
        return digest.hexdigest()[:12]


KUBERNETES = Artifact(
    "kubernetes",
    KUBERNETES_VERSION,
    ("kubernetes/main.go", "kubernetes/pull.go", "kubernetes/go.mod", "kubernetes/go.sum"),
    KUBERNETES_LDFLAGS,
    build_kubernetes,
)
HELM = Artifact("helm", HELM_VERSION, (), HELM_LDFLAGS, build_helm)
COREDNS = Artifact(
    "coredns",
    COREDNS_VERSION,
    ("coredns/main.go", "coredns/go.mod", "coredns/go.sum"),
    "",
    build_coredns,
)
PAUSE = Artifact(
    "pause",
    PAUSE_VERSION,
    ("pause/pause.c", "devcluster/ociarchive.py"),
    PAUSE_IMAGE,
    build_pause,
)

CONTROL_PLANE = (KUBERNETES,)
NODE = (KUBERNETES, COREDNS, PAUSE)
EVERYTHING = (*NODE, HELM)


def ensure(wanted: Iterable[Artifact]) -> None:
    """Builds what the cache lacks, one at a time: two builds at once only slow each other."""
    if all(artifact.folder.is_dir() for artifact in wanted):
        return
    with locked(cache_root() / "lock", what="building", timeout_seconds=gobuild.TIMEOUT_SECONDS):
        for artifact in wanted:
            if artifact.folder.is_dir():
                continue
            staging = artifact.folder.with_name(f".{artifact.folder.name}.{os.getpid()}")
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            try:
                artifact.build(staging)
                staging.rename(artifact.folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            say(f"  {artifact.name} {artifact.version} is in {artifact.folder}")
