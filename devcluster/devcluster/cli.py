"""The commands."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from devcluster import artifacts, cluster, images, packages
from devcluster.api import DEFAULT_NAME, Running
from devcluster.console import say
from devcluster.errors import DevclusterError
from devcluster.paths import Layout
from devcluster.status import as_dict, as_text, status

EXTRAS = ("controller-manager", "scheduler")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="devcluster", description="A local one-node Kubernetes.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        if name != "build":
            command.add_argument("--name", default=DEFAULT_NAME, help="which cluster (%(default)s)")
        return command

    build = add("build", "build the programs, once per machine")
    build.add_argument("--control-plane-only", action="store_true", help="only Kubernetes itself")
    up = add("up", "start a cluster, or repair it; prints its kubeconfig's path")
    up.add_argument(
        "--control-plane-only", action="store_true", help="an API server without a node"
    )
    up.add_argument(
        "--with", dest="extras", action="append", choices=EXTRAS, metavar="COMPONENT",
        help=f"add {' or '.join(EXTRAS)} to a control plane",
    )  # fmt: skip
    up.add_argument("--fake-gpus", type=int, metavar="N", help="advertise N GPUs (none)")
    down = add("down", "end a cluster and remove its data; images stay")
    down.add_argument("--purge", action="store_true", help="also images and built programs")
    shown = add("status", "how a cluster is doing; the exit status is 0 when it is ready")
    shown.add_argument("--json", action="store_true")
    add("kubeconfig", "print the path of the kubeconfig")
    load = add("load", "make an image of buildah's storage usable by pods; prints its name there")
    load.add_argument("image", nargs="?", metavar="IMAGE")
    load.add_argument(
        "--archive", type=Path, metavar="FILE", help="an OCI or Docker archive instead"
    )
    load.add_argument("--as", dest="rename", metavar="NAME", help="name for an archive's image")
    logs = add("logs", "print the log of a component")
    logs.add_argument("component", metavar="COMPONENT")
    logs.add_argument("-f", "--follow", action="store_true")
    env = add("env", "print shell commands that put kubectl and helm on PATH and set KUBECONFIG")
    env.add_argument("--json", action="store_true", help="the variables as a JSON object instead")
    run = add("exec", "run a command with kubectl, helm and KUBECONFIG in its environment")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- CMD")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    try:
        try:
            return run(parser().parse_args(argv))
        finally:
            sys.stdout.flush()
    except DevclusterError as error:
        say(f"devcluster: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `| head` has read enough. What is still buffered would fail once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def run(arguments: argparse.Namespace) -> int:
    if arguments.command == "build":
        plane = arguments.control_plane_only
        packages.ensure(packages.CONTROL_PLANE if plane else packages.NODE)
        artifacts.ensure(artifacts.CONTROL_PLANE if plane else artifacts.EVERYTHING)
        return 0
    layout = Layout.of(arguments.name)
    match arguments.command:
        case "up":
            full = not arguments.control_plane_only
            if full and os.geteuid() != 0:
                raise DevclusterError("a full node needs root; `--control-plane-only` does not")
            cluster.up(layout, full=full, extras=arguments.extras, fake_gpus=arguments.fake_gpus)
            print(layout.kubeconfig)
        case "down":
            cluster.down(layout, purge=arguments.purge)
        case "status":
            found = status(layout)
            print(json.dumps(as_dict(found), indent=1) if arguments.json else as_text(found))
            return 0 if found.ready else 1
        case "kubeconfig":
            print(existing(layout).kubeconfig)
        case "load":
            print(load(layout, arguments))
        case "logs":
            return logs(layout, arguments.component, follow=arguments.follow)
        case "env":
            variables = existing(layout).variables
            if arguments.json:
                print(json.dumps(variables))
            else:
                for name, value in variables.items():
                    print(f"export {name}={shlex.quote(value)}")
        case "exec":
            words = arguments.arguments
            words = words[1:] if words[:1] == ["--"] else words
            if not words:
                raise DevclusterError("say what to run: devcluster exec -- kubectl get pods")
            os.execvpe(words[0], words, existing(layout).environment)
    return 0


def existing(layout: Layout) -> Running:
    if not layout.record.exists():
        raise DevclusterError(f"there is no cluster {layout.name}; `devcluster up` makes one")
    return Running(layout)


def load(layout: Layout, arguments: argparse.Namespace) -> str:
    if (arguments.image is None) == (arguments.archive is None):
        raise DevclusterError("say which image: `load IMAGE` or `load --archive FILE`")
    if arguments.archive is not None:
        return images.load_archive(layout, arguments.archive, arguments.rename)
    return images.load(layout, arguments.image)


def logs(layout: Layout, component: str, *, follow: bool) -> int:
    log = layout.log(component)
    if not log.exists():
        names = sorted(found.stem for found in log.parent.glob("*.log"))
        raise DevclusterError(f"no log of {component!r}; there are: {', '.join(names) or 'none'}")
    if follow:
        os.execvp("tail", ["tail", "-n", "100", "-f", str(log)])
    sys.stdout.write(log.read_text(errors="replace"))
    return 0
