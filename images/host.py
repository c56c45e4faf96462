"""What a build container sees of the host: uv, its download cache and the certificates.

A build container has none of the host's set-up: not its certificates, not its caches. With these
folders mounted nothing is downloaded twice on one machine, and nothing of them enters a layer.
images/uv.sh reads them, and does without where they are missing.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from images import paths
from images.console import run

TOOLS = "/run/build"
DOWNLOADS = "/run/build-cache"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def volumes() -> dict[Path, str]:
    """Host folders and where a build container sees them; none where the host has no uv."""
    uv = find_uv()
    if uv is None:
        return {}
    tools = paths.cache() / "host"
    tools.mkdir(parents=True, exist_ok=True)
    _copy(uv, tools / "uv")
    certificates = Path(os.environ.get("SSL_CERT_FILE") or CERTIFICATES)
    if certificates.is_file():
        _copy(certificates, tools / "ca-certificates.crt")
    downloads = Path(run([str(uv), "cache", "dir"]))
    downloads.mkdir(parents=True, exist_ok=True)
    return {tools: TOOLS, downloads: DOWNLOADS}


def find_uv() -> Path | None:
    """uv beside the running Python, or the one on PATH."""
    beside = Path(sys.executable).parent / "uv"
    if beside.is_file():
        return beside
    found = shutil.which("uv")
    return Path(found).resolve() if found else None


def _copy(source: Path, target: Path) -> None:
    """A file, not a link, since what a link points to is not mounted. Renamed into place, since
    another build may be running the one before."""
    staging = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, staging)
    staging.chmod(0o755)
    staging.rename(target)
