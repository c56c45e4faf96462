"""A cluster's life: up, repair, replace, down."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from devcluster import artifacts, network, packages, pods
from devcluster import record as records
from devcluster.bringup import bring_up
from devcluster.components import LOOPBACK
from devcluster.console import say, step
from devcluster.errors import DevclusterError
from devcluster.paths import Layout, cache_root, state_root
from devcluster.process import Identity, alive
from devcluster.record import Record, locked
from devcluster.supervisor import Supervisor

# Longer than anything that holds it: a second caller should rather wait than fail.
LOCK_TIMEOUT_SECONDS = 900.0

USUAL_PORTS = {"etcd": 2379, "etcd-peer": 2380, "apiserver": 6443}


def free_ports(*, usual: bool) -> dict[str, int]:
    """A port for each listener: the usual one where wanted and free, else any."""
    with contextlib.ExitStack() as stack:
        ports: dict[str, int] = {}
        for name, preferred in USUAL_PORTS.items():
            taken = stack.enter_context(socket.socket())
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind((LOOPBACK, preferred if usual else 0))
            except OSError:
                taken.bind((LOOPBACK, 0))
            ports[name] = taken.getsockname()[1]
        return ports


@contextlib.contextmanager
def lock(layout: Layout) -> Iterator[None]:
    what = f"working on {layout.name}"
    with locked(layout.lock, what=what, timeout_seconds=LOCK_TIMEOUT_SECONDS):
        yield


def up(
    layout: Layout,
    *,
    full: bool,
    extras: list[str] | None = None,
    fake_gpus: int | None = None,
    owner: Identity | None = None,
) -> None:
    """Makes the cluster run as asked, whatever state it is in. Nothing happens to one that does.

    None for `extras` or `fake_gpus` leaves a running cluster's as they are.
    """
    if full:
        layout.check_length()
    packages.ensure(packages.NODE if full else packages.CONTROL_PLANE)
    artifacts.ensure(artifacts.NODE if full else artifacts.CONTROL_PLANE)
    make_up(layout, full=full, extras=extras, fake_gpus=fake_gpus, owner=owner)
    if full and not artifacts.HELM.folder.exists():
        say("  the cluster can be used already; helm comes next")
        artifacts.ensure([artifacts.HELM])


def make_up(
    layout: Layout,
    *,
    full: bool,
    extras: list[str] | None,
    fake_gpus: int | None,
    owner: Identity | None,
) -> None:
    with lock(layout):
        if full:
            refuse_second_node(layout)
        record = records.load(layout.record)
        if record is not None and record.full != full:
            say(f"  {layout.name} is of the other kind: replacing it")
            take_down(layout, record)
            record = None
        fresh = record is None
        record = record or Record(full=full, ports=free_ports(usual=full))
        if owner is not None:
            record.owner = owner
        if extras is not None:
            record.extras = sorted(extras)
        if fake_gpus is not None:
            record.fake_gpus = fake_gpus
        try:
            bring_up(layout, record)
        except DevclusterError as error:
            if fresh:
                end_processes(layout, record)
                raise
            say(
                f"  {layout.name} cannot be repaired: {error}\n  replacing it; its objects are lost"
            )
            take_down(layout, record)
            record.ports = free_ports(usual=full)
            try:
                bring_up(layout, record)
            except DevclusterError:
                end_processes(layout, record)
                raise


def refuse_second_node(layout: Layout) -> None:
    """The bridge, the firewall and the ports of a node are there once per machine."""
    for file in state_root().glob("*/cluster.json"):
        other = records.load(file)
        if other is None or file == layout.record or not other.full:
            continue
        if any(alive(started.identity) for started in other.processes.values()):
            name = file.parent.name
            raise DevclusterError(
                f"{name} is a full node already, and a machine has room for one:"
                f" use it, or `devcluster down --name {name}` first"
            )


def down(layout: Layout, *, purge: bool = False) -> None:
    """Ends what `up` started and removes what it made; images stay unless `purge`."""
    with lock(layout):
        record = records.load(layout.record)
        if record is not None:
            with step(f"{layout.name} is down"):
                take_down(layout, record)
            if record.owner is not None:
                # Its name is used once; nobody else waits for this lock.
                layout.lock.unlink(missing_ok=True)
        if purge:
            shutil.rmtree(layout.home, ignore_errors=True)
            shutil.rmtree(cache_root(), ignore_errors=True)


def end_processes(layout: Layout, record: Record) -> None:
    supervisor = Supervisor(layout, record)
    supervisor.end("kubelet")
    if record.full:
        pods.end_all(layout)
    for name in reversed(list(record.processes)):
        supervisor.end(name)
    if record.full:
        pods.end_shims(layout)


def take_down(layout: Layout, record: Record) -> None:
    end_processes(layout, record)
    if record.full and os.geteuid() == 0:
        pods.unmount(layout.home)
        pods.remove_leftovers(layout)
        network.remove_rules()
        network.remove_bridge()
        network.restore_sysctls(record.sysctls)
    # The record goes last: while it is there, a `down` that was interrupted can be repeated.
    for entry in layout.home.iterdir():
        if entry == layout.images or entry == layout.record:
            continue
        remove(entry)
    layout.record.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        layout.home.rmdir()


def remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()
