"""A base image where no registry can be reached: Debian 12 with Python, by debootstrap.

Everywhere else a Containerfile's own default, or `--base NAME`, is used. Both must have `python3`
of version 3.11 or newer and nothing more.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from images.builder import Builder
from images.console import run, step
from images.errors import ImageError

SUITE = "bookworm"
# The full python3: python3-minimal has no http module. The certificates are for programs that
# reach out; openssl and Python's ssl module read them.
PACKAGES = ("python3", "ca-certificates")

# Not used when a container runs. Copyright files stay, as Debian's licences ask.
UNUSED = (
    "usr/share/locale",
    "usr/share/man",
    "usr/share/info",
    "usr/share/lintian",
    "var/cache/apt",
    "var/cache/debconf",
    "var/lib/apt/lists",
    "var/log",
)


def reference() -> str:
    """The name of the base image; it changes when this file does."""
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return f"localhost/debian-python:{SUITE}-{digest}"


def ensure(builder: Builder) -> str:
    """Builds the base image unless there is one, and gives its name."""
    name = reference()
    if builder.exists(name):
        return name
    if shutil.which("debootstrap") is None:
        raise ImageError(
            "no base image and no debootstrap: install it (apt-get install debootstrap), "
            "or name a base image with Python, --base python:3.11-slim-bookworm"
        )
    with step(f"base image: Debian {SUITE} with Python (1 to 2 minutes, once)"):
        container = builder.call("from", "scratch")
        try:
            tree = Path(builder.call("mount", container))
            _debootstrap(tree)
            builder.call("umount", container)
            # Python reads UTF-8 whatever locale a pod has.
            builder.call("config", "--env", "LANG=C.UTF-8", container)
            builder.call("commit", "--quiet", container, name)
        finally:
            builder.call("rm", container)
    return name


def _debootstrap(tree: Path) -> None:
    run(
        ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(tree)],
        environment=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )
    for unused in UNUSED:
        shutil.rmtree(tree / unused, ignore_errors=True)
        (tree / unused).mkdir()
    for path in (tree / "usr/share/doc").rglob("*"):
        if not path.is_dir() and path.name != "copyright":
            path.unlink()
