"""The API server, as few calls on plain JSON objects.

Thin over the official client's asyncio half: its transport, credentials and token refresh are
used, its generated models are not, since server-side apply sends exactly the fields it owns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from warmgraph_api import labels
from warmgraph_operator.kinds import INFERENCE_DEPLOYMENT, Kind, Object

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"

REQUEST_TIMEOUT_SECONDS = 15.0
"""Longer than an API server under load takes, short enough that a pass ends within a resync."""

NOT_FOUND, CONFLICT, FORBIDDEN = 404, 409, 403


class ApiError(Exception):
    """An answer that is not a success. `message` is the API server's own, for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


Writes = Callable[[str, str], None]
"""Told of each write: verb and plural."""


def uncounted(_verb: str, _plural: str) -> None:
    """Writes that nobody counts."""


class Cluster:
    """One connection pool to one API server."""

    def __init__(self, api: Any, *, on_write: Writes = uncounted) -> None:
        self._api = api
        self._on_write = on_write

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return await self._request("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def list(
        self, kind: Kind, namespace: str | None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Objects that match, whole as from `get`: a list leaves out what its items are."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        answer = await self._request("GET", kind.path(namespace), query=query)
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return [{**head, **item} for item in answer["items"] or []]

    async def apply(self, kind: Kind, body: Object, *, subresource: str = "") -> Object:
        """Server-side apply: after it, the live object holds these fields, owned by us."""
        self._on_write("apply", kind.plural)
        metadata = body["metadata"]
        return await self._request(
            "PATCH",
            kind.path(metadata["namespace"], metadata["name"], subresource),
            query={"fieldManager": labels.FIELD_MANAGER, "force": "true"},
            content_type=APPLY,
            body=body,
        )

    async def create(self, kind: Kind, body: Object) -> Object:
        self._on_write("create", kind.plural)
        return await self._request(
            "POST",
            kind.path(body["metadata"]["namespace"]),
            query={"fieldManager": labels.FIELD_MANAGER},
            body=body,
        )

    async def replace(self, kind: Kind, body: Object) -> Object:
        """The whole object, unless it changed since it was read (ApiError with status 409)."""
        self._on_write("replace", kind.plural)
        metadata = body["metadata"]
        return await self._request(
            "PUT", kind.path(metadata["namespace"], metadata["name"]), body=body
        )

    async def delete(self, kind: Kind, live: Object) -> None:
        """Exactly this object, not a later one of its name; gone already is fine."""
        self._on_write("delete", kind.plural)
        metadata = live["metadata"]
        try:
            await self._request(
                "DELETE",
                kind.path(metadata["namespace"], metadata["name"]),
                body={"preconditions": {"uid": metadata["uid"]}},
            )
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    async def scale(
        self, namespace: str, name: str, *, replicas: int, resource_version: str
    ) -> None:
        """Write `spec.replicas` through /scale, unless the resource changed since it was read
        (ApiError with status 409): whoever wrote in between knew something we did not."""
        self._on_write("scale", INFERENCE_DEPLOYMENT.plural)
        await self._request(
            "PATCH",
            INFERENCE_DEPLOYMENT.path(namespace, name, "scale"),
            query={"fieldManager": labels.FIELD_MANAGER},
            content_type=MERGE,
            body={
                "metadata": {"resourceVersion": resource_version},
                "spec": {"replicas": replicas},
            },
        )

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        content_type: str = JSON,
        body: Object | None = None,
    ) -> Object:
        request = await self._api.param_serialize(
            method,
            path,
            query_params=[(key, value) for key, value in (query or {}).items() if value],
            header_params={"Accept": JSON, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await self._api.call_api(*request, _request_timeout=REQUEST_TIMEOUT_SECONDS)
        text = await response.read()
        if not 200 <= response.status <= 299:
            raise ApiError(response.status, _message(text))
        answer: Object = json.loads(text)
        return answer


def _message(text: bytes) -> str:
    """The message of a metav1.Status, or whatever a proxy in between has answered."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, TypeError, KeyError):
        return text[:200].decode(errors="replace")


def in_cluster() -> bool:
    return (
        "KUBERNETES_SERVICE_HOST" in os.environ
        and Path("/var/run/secrets/kubernetes.io/serviceaccount/token").exists()
    )


async def connect(*, kubeconfig: str | None = None, on_write: Writes = uncounted) -> Cluster:
    """The cluster of a kubeconfig, if given; else the one that this pod runs in, else the one
    that KUBECONFIG named when the process started."""
    configuration = kubernetes_client.Configuration()
    if kubeconfig is None and in_cluster():
        kubernetes_config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration
        )
    else:
        await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, client_configuration=configuration
        )
    return Cluster(kubernetes_client.ApiClient(configuration), on_write=on_write)
