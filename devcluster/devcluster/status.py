"""How a cluster is doing, for people and for programs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from devcluster import health
from devcluster import record as records
from devcluster.bringup import client_of, components_of, node_problem
from devcluster.client import ApiError
from devcluster.components import REGISTRY
from devcluster.errors import DevclusterError
from devcluster.paths import Layout
from devcluster.process import alive


@dataclass(frozen=True)
class ComponentStatus:
    name: str
    pid: int | None
    problem: str | None
    log: str


@dataclass(frozen=True)
class Status:
    """`ready` is the one answer; the rest says why not."""

    name: str
    kind: str
    ready: bool
    server: str
    kubeconfig: str
    registry: str | None
    fake_gpus: int
    components: list[ComponentStatus]
    node_problem: str | None


def status(layout: Layout) -> Status:
    record = records.load(layout.record)
    if record is None:
        raise DevclusterError(f"there is no cluster {layout.name}; `devcluster up` makes one")
    client = client_of(layout, record)
    checks = health.checks(layout, client, record.ports)
    found = []
    for component in components_of(layout, record):
        started = record.processes.get(component.name)
        problem: str | None = "not running"
        if started and alive(started.identity):
            problem = checks[component.name]() if component.name in checks else None
        pid = started.identity.pid if started else None
        found.append(ComponentStatus(component.name, pid, problem, str(layout.log(component.name))))
    node = None
    if record.full:
        try:
            node = node_problem(client, record.fake_gpus)
        except ApiError as error:
            node = f"unknown: {error}"
    return Status(
        name=layout.name,
        kind="full node" if record.full else "control plane",
        ready=node is None and all(component.problem is None for component in found),
        server=f"https://{client.host}:{client.port}",
        kubeconfig=str(layout.kubeconfig),
        registry=REGISTRY if record.full else None,
        fake_gpus=record.fake_gpus,
        components=found,
        node_problem=node,
    )


def as_text(shown: Status) -> str:
    lines = [
        f"{shown.name}: {shown.kind}, {'ready' if shown.ready else 'NOT READY'}",
        f"  server      {shown.server}",
        f"  kubeconfig  {shown.kubeconfig}",
    ]
    if shown.registry:
        lines.append(f"  registry    {shown.registry}")
    if shown.fake_gpus:
        lines.append(f"  fake GPUs   {shown.fake_gpus}")
    for component in shown.components:
        state = f"{component.problem} (see {component.log})" if component.problem else "ok"
        lines.append(f"  {component.name:<18} {component.pid or '-':>7}  {state}")
    if shown.node_problem:
        lines.append(f"  node: {shown.node_problem}")
    return "\n".join(lines)


def as_dict(shown: Status) -> dict[str, object]:
    return dataclasses.asdict(shown)
