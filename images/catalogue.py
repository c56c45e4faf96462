"""The images: what each is built from, and the name that follows from it.

An image's tag is a digest of everything that went into it. So a tag always means the same
content, `imagePullPolicy: IfNotPresent` is right, and whether there is anything to build is known
without asking the builder.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from images.paths import ROOT

# Twelve hexadecimal digits tell every build of a project apart, and a person can compare them.
TAG_DIGITS = 12

# Left out of every build by .dockerignore as well.
GENERATED = ("__pycache__", ".egg-info")


@dataclass(frozen=True, kw_only=True)
class Image:
    name: str
    containerfile: str
    """Relative to the repository."""
    sources: tuple[str, ...]
    """Files and folders, relative to the repository, that only the code layer is built from."""
    patience: str
    """How long a build takes on two cores, for the person who waits."""

    @property
    def requirements(self) -> str:
        return f"images/requirements/{self.name}.txt"

    @property
    def repository(self) -> str:
        return f"warmgraph-{self.name}"


SCRIPTS = ("images/uv.sh", "images/install-requirements.sh", "images/install-code.sh")
PACKAGING = ("pyproject.toml", "LICENSE")

CONTROL_PLANE = Image(
    name="control-plane",
    containerfile="images/control-plane.Containerfile",
    sources=(*PACKAGING, "api", "operator", "activator", "sidecar"),
    patience="a minute; seconds when only code changed",
)
ENGINE = Image(
    name="engine",
    containerfile="images/engine.Containerfile",
    sources=(*PACKAGING, "api", "engine"),
    patience="about 5 minutes for torch; seconds when only code changed",
)
DEMO_MODEL = Image(
    name="demo-model",
    containerfile="images/demo-model/Containerfile",
    sources=(*PACKAGING, "api", "engine", "demo/fetch_model.py", "images/demo-model"),
    patience="a minute; seconds when only code changed",
)
ALL = (CONTROL_PLANE, ENGINE, DEMO_MODEL)


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: str = project["version"]
    return found


def tag(image: Image, *, base: str, root: Path = ROOT) -> str:
    """Version and digest of what `image` is built from in `root` on top of the image `base`."""
    digest = hashlib.sha256(base.encode())
    for path in sorted(inputs(image, root)):
        digest.update(f"\0{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return f"{version()}-{digest.hexdigest()[:TAG_DIGITS]}"


def inputs(image: Image, root: Path) -> Iterator[Path]:
    """Every file below `root` that the image is built from."""
    sources = (image.containerfile, image.requirements, *SCRIPTS, *image.sources)
    for source in sources:
        path = root / source
        for found in path.rglob("*") if path.is_dir() else [path]:
            parts = found.relative_to(root).parts
            if found.is_file() and not any(part.endswith(GENERATED) for part in parts):
                yield found
