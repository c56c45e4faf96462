"""A cluster's life: up, repair, replace, down."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from devcluster import (
    addons,
    artifacts,
    components,
    configs,
    ctr,
    fakegpu,
    health,
    network,
    packages,
    pods,
)
from devcluster import (
    record as records,
)
from devcluster.client import Client
from devcluster.components import LOOPBACK, NODE_NAME
from devcluster.console import say, step
from devcluster.errors import DevclusterError
from devcluster.paths import Layout, cache_root, state_root
from devcluster.process import Identity, alive, boot_id
from devcluster.record import Record, locked
from devcluster.supervisor import Supervisor
from devcluster.wait import wait_for

# Ten times what each takes on an idle machine with two cores.
API_TIMEOUT_SECONDS = 90.0
COMPONENT_TIMEOUT_SECONDS = 60.0
NODE_TIMEOUT_SECONDS = 120.0
# Longer than all of the above together: a second caller should rather wait than fail.
LOCK_TIMEOUT_SECONDS = 600.0

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


def client_of(layout: Layout, record: Record) -> Client:
    host = network.NODE_ADDRESS if record.full else LOOPBACK
    return Client(host, record.ports["apiserver"], layout.pki)


def components_of(layout: Layout, record: Record) -> list[components.Component]:
    return components.wanted(
        layout,
        record.ports,
        full=record.full,
        extras=record.extras,
        fake_gpus=record.fake_gpus,
    )


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
            record.ports, record.processes = free_ports(usual=full), {}
            bring_up(layout, record)


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


def bring_up(layout: Layout, record: Record) -> None:
    supervisor = Supervisor(layout, record)
    supervisor.save()
    client = client_of(layout, record)
    checks = health.checks(layout, client, record.ports)
    prepare(layout, record)
    wanted = components_of(layout, record)
    for name in set(record.processes) - {component.name for component in wanted}:
        supervisor.end(name)

    def healthy(name: str, timeout_seconds: float) -> None:
        if name in checks:
            wait_for(
                f"{name} is not well",
                checks[name],
                timeout_seconds=timeout_seconds,
                log=layout.log(name),
                alive=supervisor.is_running(name),
            )

    with step("API server ready"):
        for component in wanted:
            if not component.needs_api:
                supervisor.ensure(component)
        # etcd first: the API server would wait for one that has died until its time is over.
        healthy("etcd", COMPONENT_TIMEOUT_SECONDS)
        healthy("apiserver", API_TIMEOUT_SECONDS)
    if record.full:
        healthy("containerd", COMPONENT_TIMEOUT_SECONDS)
        archive = artifacts.PAUSE.folder / "pause.tar"
        ctr.ensure_imported(layout, image=artifacts.PAUSE_IMAGE, archive=archive)
        addons.apply(client)
    for component in wanted:
        if component.needs_api:
            supervisor.ensure(component)
    for component in wanted:
        healthy(component.name, COMPONENT_TIMEOUT_SECONDS)
    wait_until_usable(layout, record, client)


def prepare(layout: Layout, record: Record) -> None:
    """Everything that must be there before the first process starts."""
    if record.full:
        if any(started.identity.boot != boot_id() for started in record.processes.values()):
            # The machine was restarted: the tasks in this folder died with it.
            shutil.rmtree(layout.containerd_state, ignore_errors=True)
        # What was there before the first `up` is what `down` must bring back.
        record.sysctls = {**network.set_sysctls(), **record.sysctls}
        records.save(layout.record, record)
        network.ensure_bridge()
        network.ensure_egress_rule()
        layout.volumes.mkdir(parents=True, exist_ok=True)
    configs.write(layout, record.ports, full=record.full)
    layout.bin.mkdir(exist_ok=True)
    tools = {"kubectl": artifacts.KUBERNETES.folder, "helm": artifacts.HELM.folder}
    for name, folder in tools.items():
        link = layout.bin / name
        link.unlink(missing_ok=True)
        link.symlink_to(folder / name)


def wait_until_usable(layout: Layout, record: Record, client: Client) -> None:
    """Components that answer are not yet a cluster that takes a pod."""
    if record.full or "controller-manager" in record.extras:
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_for(
            "the default service account is missing",
            lambda: None if client.find(account) else "not created yet",
            timeout_seconds=COMPONENT_TIMEOUT_SECONDS,
            log=layout.log("controller-manager"),
        )
    if record.full:
        with step(f"node {NODE_NAME} ready"):
            wait_for(
                "the node is not ready",
                lambda: node_problem(client, record.fake_gpus),
                timeout_seconds=NODE_TIMEOUT_SECONDS,
                log=layout.log("kubelet"),
            )


def node_problem(client: Client, fake_gpus: int) -> str | None:
    node = client.find(fakegpu.NODE)
    if node is None:
        return "the kubelet has not registered it"
    conditions = {found["type"]: found for found in node["status"].get("conditions", [])}
    ready = conditions.get("Ready", {"status": "Unknown", "message": "no condition yet"})
    if ready["status"] != "True":
        return str(ready["message"])
    if taints := node["spec"].get("taints"):
        return f"taint {taints[0]['key']}"
    if fakegpu.patch(node, fake_gpus) is not None:
        return f"it does not show {fake_gpus} GPUs yet"
    return None


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
    for entry in layout.home.iterdir():
        if entry == layout.images or entry == layout.record:
            continue
        remove(entry)
    # Last: while it is there, a `down` that was interrupted can be repeated.
    layout.record.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        layout.home.rmdir()


def remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()
