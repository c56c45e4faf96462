"""buildah, podman or docker: the same few acts, with each one's options."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from images import paths
from images.console import run
from images.errors import ImageError

PROGRAMS = ("buildah", "podman", "docker")


@dataclass(frozen=True, kw_only=True)
class Builder:
    """One of PROGRAMS, with the variables that every call of it needs."""

    program: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def has_volumes(self) -> bool:
        """Whether a build can mount folders of the host; docker's cannot."""
        return self.program != "docker"

    def call(self, *arguments: str) -> str:
        """Standard output of a command of the program."""
        return run([self.program, *arguments], environment=os.environ | self.environment)

    def names(self) -> list[str]:
        """Every image in the storage, as `repository:tag`."""
        field_name = "Name" if self.program == "buildah" else "Repository"
        found = self.call("images", "--format", f"{{{{.{field_name}}}}}:{{{{.Tag}}}}").splitlines()
        # docker leaves out the host part that the other two show.
        return [name if name.startswith("localhost/") else f"localhost/{name}" for name in found]

    def exists(self, name: str) -> bool:
        return name in self.names()

    def remove(self, name: str) -> None:
        self.call("rmi", name)

    def build(
        self,
        context: Path,
        containerfile: str,
        *,
        name: str,
        base: str,
        volumes: dict[Path, str],
    ) -> None:
        """Builds from the files in `context`. `base` may be empty, for the Containerfile's own;
        `volumes` are host folders and where the build's commands see them."""
        self.call(
            *build_arguments(
                self.program, context, containerfile, name=name, base=base, volumes=volumes
            )
        )

    def push(self, name: str, destination: str) -> None:
        """Copies the image `name` to `destination`, its name in a registry."""
        if self.program == "buildah":
            self.call("push", "--quiet", name, f"docker://{destination}")
            return
        self.call("tag", name, destination)
        self.call("push", "--quiet", destination)


def build_arguments(
    program: str,
    context: Path,
    containerfile: str,
    *,
    name: str,
    base: str,
    volumes: dict[Path, str],
) -> list[str]:
    """The command line of a build, without the program."""
    # docker always keeps layers, and containers of failed builds never.
    kept = [] if program == "docker" else ["--layers", "--force-rm"]
    return [
        "build",
        *kept,
        *([f"--build-arg=BASE={base}"] if base else []),
        *(f"--volume={folder}:{inside}" for folder, inside in volumes.items()),
        f"--file={context / containerfile}",
        f"--tag={name}",
        str(context),
    ]


def choose(program: str) -> Builder:
    """The builder called `program`; "auto" takes the first one that is installed."""
    if program == "auto":
        found = next((name for name in PROGRAMS if shutil.which(name)), None)
        if found is None:
            raise ImageError(f"none of {', '.join(PROGRAMS)} is installed; install one of them")
        program = found
    if program != "buildah":
        return Builder(program=program)
    return Builder(program=program, environment=_buildah_environment())


def _buildah_environment() -> dict[str, str]:
    """What makes buildah, and whoever calls it for us, keep its layers in the user's cache."""
    folder = paths.cache()
    storage = folder / "storage"
    # What is mounted right now must not outlive a reboot, so it is kept where /run is.
    key = hashlib.sha256(str(storage).encode()).hexdigest()[:8]
    state = Path(os.environ.get("XDG_RUNTIME_DIR") or "/run") / f"warmgraph-images-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "storage.conf"
    settings.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{storage}"\nrunroot = "{state}"\n'
    )
    return {
        "CONTAINERS_STORAGE_CONF": str(settings),
        # Needs no container runtime and no network of its own.
        "BUILDAH_ISOLATION": os.environ.get("BUILDAH_ISOLATION", "chroot"),
    }
