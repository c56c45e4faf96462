"""Advertises GPUs that are not there, so that scheduling by GPU can be tested without one."""

from __future__ import annotations

from typing import Any

from devcluster.client import Client
from devcluster.components import NODE_NAME

RESOURCE = "nvidia.com/gpu"
NODE = f"/api/v1/nodes/{NODE_NAME}"


def patch(node: Any, count: int) -> Any | None:
    """The change of the node's status that makes it advertise `count` GPUs, None when it does.

    The kubelet keeps an extended resource that it knows nothing of, except when it registers the
    node anew; that is why the agent looks again and again.
    """
    wanted = str(count) if count else None
    status = node["status"]
    shown = {part: status.get(part, {}).get(RESOURCE) for part in ("capacity", "allocatable")}
    if all(value == wanted for value in shown.values()):
        return None
    return {"status": {part: {RESOURCE: wanted} for part in shown}}


def reconcile(client: Client, count: int) -> None:
    node = client.find(NODE)
    if node is not None and (change := patch(node, count)) is not None:
        client.merge(f"{NODE}/status", change)
