"""The commands."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from images import base, builder, catalogue, context, host, lock, registry
from images.catalogue import Image
from images.console import run as run_command
from images.console import say, step
from images.errors import ImageError
from images.paths import ROOT
from images.turn import turn

# What builders call the registry of an image that came from none.
LOCAL_PREFIX = "localhost/"
NAMES = [image.name for image in catalogue.ALL]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="images", description="The container images.")
    top.add_argument(
        "--builder", choices=("auto", *builder.PROGRAMS), default="auto",
        help="what builds; auto takes the first that is installed",
    )  # fmt: skip
    top.add_argument(
        "--base", metavar="NAME",
        help="base image with Python; buildah makes one of Debian by debootstrap if none is named, "
        "docker and podman take the Containerfile's",
    )  # fmt: skip
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="build what has changed; prints the names as JSON")
    build.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help="all of them")
    where = build.add_mutually_exclusive_group()
    where.add_argument("--load", action="store_true", help="into the local cluster's registry")
    where.add_argument("--push", metavar="PREFIX", help="to a registry: PREFIX/warmgraph-engine:…")

    names = commands.add_parser("names", help="print by what names pods use the images, as JSON")
    names.add_argument("--prefix", default=registry.LOCAL, help="registry (%(default)s)")

    commands.add_parser("prune", help="remove images of older sources from the builder")
    locked = commands.add_parser("lock", help="write the requirements of the images")
    locked.add_argument("--check", action="store_true", help="only say whether they are current")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        return run(arguments)
    except ImageError as error:
        say(str(error))
        return 1


def run(arguments: argparse.Namespace) -> int:
    if arguments.command == "lock":
        return write_locks(check=arguments.check)
    chosen = builder.choose(arguments.builder)
    match arguments.command:
        case "build":
            with turn():
                names = build_all(chosen, arguments)
            print(json.dumps(names, indent=1))
        case "names":
            base_name = base_of(chosen, arguments.base, make=False)
            print(json.dumps(references(arguments.prefix, base_name), indent=1))
        case "prune":
            with turn():
                prune(chosen, base_of(chosen, arguments.base, make=False))
    return 0


def build_all(chosen: builder.Builder, arguments: argparse.Namespace) -> dict[str, str]:
    """Image → its name where it was asked to be: in the builder, the cluster or a registry."""
    base_name = base_of(chosen, arguments.base, make=True)
    names = {}
    for image in catalogue.ALL:
        if image.name in (arguments.names or NAMES):
            name = build(chosen, image, base_name)
            if arguments.load:
                name = load(chosen, name)
            elif arguments.push:
                name = push(chosen, name, arguments.push)
            names[image.name] = name
    return names


def base_of(chosen: builder.Builder, name: str | None, *, make: bool) -> str:
    """The base image; empty for the Containerfile's own."""
    if name is not None or chosen.program != "buildah":
        return name or ""
    return base.ensure(chosen) if make else base.reference()


def references(prefix: str, base_name: str) -> dict[str, str]:
    return {
        image.name: f"{prefix}/{image.repository}:{catalogue.tag(image, base=base_name)}"
        for image in catalogue.ALL
    }


def build(chosen: builder.Builder, image: Image, base_name: str) -> str:
    """The image's name in the builder's storage, built if it is not there."""
    with context.snapshot(image) as folder:
        name = (
            f"{LOCAL_PREFIX}{image.repository}:{catalogue.tag(image, base=base_name, root=folder)}"
        )
        if not chosen.exists(name):
            volumes = host.volumes() if chosen.has_volumes else {}
            with step(f"building {name} ({image.patience})"):
                chosen.build(
                    folder, image.containerfile, name=name, base=base_name, volumes=volumes
                )
    return name


def load(chosen: builder.Builder, name: str) -> str:
    """The name by which the local cluster's pods use the image, once the cluster has it."""
    target = f"{registry.LOCAL}/{name.removeprefix(LOCAL_PREFIX)}"
    if not registry.local_has(target):
        with step(f"loading {target} into the local cluster"):
            if chosen.program == "buildah":
                # devcluster calls buildah itself, and lets the node pull as well.
                command = [sys.executable, "-m", "devcluster", "load", name]
                run_command(command, environment=os.environ | chosen.environment, folder=ROOT)
            else:
                chosen.push(name, target)
    return target


def push(chosen: builder.Builder, name: str, prefix: str) -> str:
    target = f"{prefix}/{name.removeprefix(LOCAL_PREFIX)}"
    with step(f"pushing {target}"):
        chosen.push(name, target)
    return target


def prune(chosen: builder.Builder, base_name: str) -> None:
    kept = set(references("localhost", base_name).values()) | {base_name}
    for name in chosen.names():
        ours = name.startswith(("localhost/warmgraph-", "localhost/debian-python:"))
        if ours and name not in kept:
            chosen.remove(name)
            say(f"removed {name}")


def write_locks(*, check: bool) -> int:
    stale = 0
    for name in lock.LOCKS:
        if not check:
            lock.write(name)
        for difference in lock.drift(name):
            say(f"images/requirements/{name}.txt: {difference}; run `python -m images lock`")
            stale += 1
    return 1 if stale else 0
