"""Starting a cluster, or the rest of one, and waiting until a pod could be made."""

from __future__ import annotations

import shutil

from devcluster import addons, artifacts, components, configs, ctr, fakegpu, health, network
from devcluster import record as records
from devcluster.client import Client
from devcluster.components import LOOPBACK, NODE_NAME
from devcluster.console import step
from devcluster.paths import Layout
from devcluster.process import boot_id
from devcluster.record import Record
from devcluster.supervisor import Supervisor
from devcluster.wait import wait_for

# Many times what each takes on an idle machine with two cores: a loaded one is no broken one, and a
# process that has died is noticed at once anyway.
API_TIMEOUT_SECONDS = 180.0
COMPONENT_TIMEOUT_SECONDS = 120.0
NODE_TIMEOUT_SECONDS = 180.0


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


def bring_up(layout: Layout, record: Record) -> None:
    """Starts what does not run and waits until the cluster can be used."""
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
