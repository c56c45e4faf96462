"""Moving images from the builder's storage into the cluster.

Through a registry on loopback rather than archives: it takes only the layers that it does not
have yet, and the engine's image is gigabytes of a layer that rarely changes.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

from devcluster import ctr, health
from devcluster import record as records
from devcluster.components import REGISTRY, REGISTRY_PORT
from devcluster.console import step
from devcluster.errors import DevclusterError
from devcluster.packages import program
from devcluster.paths import Layout

# Five gigabytes to a slow disk.
TIMEOUT_SECONDS = 900


# buildah always compresses for a registry. Of what it can do, zstd's first level takes half of the
# time of gzip's, and containerd unpacks it faster.
PUSH_OPTIONS = ("--tls-verify=false", "--compression-format=zstd", "--compression-level=1")


def reference(image: str) -> str:
    """The name by which pods use an image: its own, with our registry for its registry."""
    first, slash, rest = image.partition("/")
    is_host = first == "localhost" or "." in first or ":" in first
    name = rest if slash and is_host else image
    if ":" not in name.rpartition("/")[2]:
        name += ":latest"
    return f"{REGISTRY}/{name}"


def buildah(*arguments: str) -> str:
    command = [program("buildah"), *arguments]
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise DevclusterError(f"`{' '.join(command)}` took over {TIMEOUT_SECONDS} s") from None
    if finished.returncode != 0:
        raise DevclusterError(f"`{' '.join(command)}` failed:\n{finished.stderr.strip()}")
    return finished.stdout.strip()


def load(layout: Layout, image: str) -> str:
    """Pushes an image of buildah's storage; returns the name that pods use."""
    record = records.load(layout.record)
    if record is None or not record.full:
        raise DevclusterError(f"{layout.name} is no full node that runs; `devcluster up` first")
    if problem := health.http_ok(REGISTRY_PORT, "/v2/"):
        raise DevclusterError(
            f"the registry does not answer ({problem}); `devcluster up` repairs it"
        )
    target = reference(image)
    with step(f"loaded {image} as {target}"):
        buildah("push", "--quiet", *PUSH_OPTIONS, image, f"docker://{target}")
        ctr.pull(layout, target)
    return target


def load_archive(layout: Layout, archive: Path, name: str | None) -> str:
    """Loads an `oci-archive` or `docker-archive` file, under its own name or another."""
    if not archive.is_file():
        raise DevclusterError(f"there is no file {archive}")
    kind = "oci-archive" if is_oci(archive) else "docker-archive"
    identity = buildah("pull", "--quiet", f"{kind}:{archive}")
    if name is None:
        names = json.loads(buildah("inspect", "--type=image", identity)).get("FromImage")
        if not names:
            raise DevclusterError(f"{archive} does not name its image; say how with --as NAME")
        return load(layout, names)
    buildah("tag", identity, name)
    return load(layout, name)


def is_oci(archive: Path) -> bool:
    with tarfile.open(archive) as tar:
        return any(member.name.removeprefix("./") == "oci-layout" for member in tar)
