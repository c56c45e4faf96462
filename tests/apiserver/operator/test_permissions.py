"""The permissions in operator/README.md are enough: the operator works with those and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from devcluster.api import Running
from tests.apiserver.operator.world import World, activator
from warmgraph_operator import kinds
from warmgraph_operator.client import Cluster, connect
from warmgraph_operator.kinds import Kind, Object

README = Path(__file__).parents[3] / "operator" / "README.md"
RBAC = "rbac.authorization.k8s.io"


async def test_what_the_readme_asks_for_is_enough(
    world: World, control_plane: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere, in_release, in_cluster = tables(README.read_text())
    await grant(world, [*everywhere, *in_release], cluster_wide=in_cluster)
    config = tmp_path / "kubeconfig"
    config.write_text(await restricted(world, json.loads(control_plane.kubeconfig.read_text())))
    monkeypatch.setenv("KUBECONFIG", str(config))
    await activator(world)
    operator = await world.start(kubeconfig=config, activator_namespace=world.namespace)
    world.kubelet()

    await world.create(
        "tiny",
        graphCache={"mode": "ReadWrite", "volume": {"storageClassName": "gold"}},
        rollout={"historyLimit": 0},
        scaling={"autoscaler": "None", "minReplicas": 0},
        template={"envFrom": [{"configMapRef": {"name": "settings", "optional": True}}]},
    )
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    await world.edit("tiny", model={"revision": "two"})
    await world.until("tiny", "UpToDate", "False")
    await world.until("tiny", "UpToDate", "True")
    await world.edit("tiny", graphCache={"volume": {"storageClassName": "silver"}})
    resource = await world.have(kinds.INFERENCE_DEPLOYMENT, "tiny")
    port = resource["status"]["activator"]["port"]
    world.pods.stands_for[port] = (world.namespace, "tiny")
    await world.edit("tiny", replicas=0)
    await world.until("tiny", "Ready", "True", "ScaledToZero")
    await world.edit("tiny", scaling={"autoscaler": "BuiltIn", "minReplicas": 1})
    await world.until("tiny", "Ready", "True", "AllReplicasReady")
    assert operator.metrics.passes.labels("error")._value.get() == 0
    # These are optional in a pass, so that a pass alone would not tell that they are refused.
    own = await connect(kubeconfig=str(config))
    try:
        await own.list(kinds.AUTOSCALER, world.namespace)
        await own.list(kinds.CORE_EVENT, world.namespace)
        await own.list(kinds.STORAGE_CLASS, None)
    finally:
        await own.close()
    reasons = {event["reason"] for event in await world.all(kinds.EVENT)}
    assert {"Scaled", "ScaledToZero"} <= reasons


def tables(text: str) -> list[list[Object]]:
    """The rules of each table of permissions, in their order."""
    found: list[list[Object]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "apiGroups":
            found.append([])
        elif found and len(cells) == 4 and cells[0].startswith("`"):
            resources = re.findall(r"`([^`]+)`", cells[1])
            verbs = [verb.strip() for verb in cells[2].split(",")]
            group = cells[0].strip('`"')
            if all("-" not in resource and resource for resource in resources):
                found[-1].append({"apiGroups": [group], "resources": resources, "verbs": verbs})
    return found


async def grant(world: World, rules: list[Object], *, cluster_wide: list[Object]) -> None:
    """To the service account `operator` of the namespace."""
    await world.post(kinds.SERVICE_ACCOUNT, {"metadata": {"name": "operator"}})
    subjects = [{"kind": "ServiceAccount", "name": "operator", "namespace": world.namespace}]
    for scope, granted in (("", rules), ("Cluster", cluster_wide)):
        name = f"{world.namespace}-operator"
        role = Kind(f"{RBAC}/v1", f"{scope}Role", f"{scope.lower()}roles")
        binding = Kind(f"{RBAC}/v1", f"{scope}RoleBinding", f"{scope.lower()}rolebindings")
        place = None if scope else world.namespace
        await create(world.cluster, role, place, {"metadata": {"name": name}, "rules": granted})
        reference = {"apiGroup": RBAC, "kind": role.kind, "name": name}
        body = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
        await create(world.cluster, binding, place, body)


async def create(cluster: Cluster, kind: Kind, namespace: str | None, body: Object) -> Object:
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    made: Object = await cluster._request("POST", kind.path(namespace), body={**head, **body})
    return made


async def restricted(world: World, admin: Any) -> str:
    """A kubeconfig with the service account's token instead of the administrator's certificate."""
    request = Kind("authentication.k8s.io/v1", "TokenRequest", "tokenrequests")
    answer = await world.cluster._request(
        "POST",
        kinds.SERVICE_ACCOUNT.path(world.namespace, "operator", "token"),
        body={"apiVersion": request.api_version, "kind": request.kind, "spec": {}},
    )
    for user in admin["users"]:
        user["user"] = {"token": answer["status"]["token"]}
    return json.dumps(admin)
