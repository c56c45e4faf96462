"""The API server, as the four calls that the activator makes of it.

Thin over the official client's asyncio half: its credentials and connections are used, its
models are not, since only a few fields of each object matter here.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import aiohttp
import msgspec
from kubernetes.aio import client, config

from warmgraph_activator.objects import Key
from warmgraph_api import labels

REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=10.0)
"""Longer than a loaded API server takes for one object, short against a caller's patience."""

WATCH_SECONDS = 45
"""The server ends a watch after this, and the next begins where it ended: a connection that died
without a word is noticed within a minute."""

WATCH_TIMEOUT = aiohttp.ClientTimeout(total=WATCH_SECONDS + 10)

CONFLICT = 409
GONE = 410


class ApiError(Exception):
    """The API server refused, could not be reached, or did not answer in time."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """Of HTTP; 0 if there was no answer."""


class Scale(NamedTuple):
    replicas: int
    resource_version: str


class Scales(Protocol):
    """The /scale of resources: all that a wake-up needs."""

    async def read_scale(self, key: Key) -> Scale: ...

    async def write_scale(self, key: Key, *, replicas: int, resource_version: str) -> None: ...


class Collection(NamedTuple):
    """Objects of one kind that can be listed and watched."""

    path: str
    label_selector: str = ""


def deployments(namespace: str) -> Collection:
    """InferenceDeployments of a namespace, or of all if it is empty."""
    return Collection(_path(f"/apis/{labels.API_VERSION}", namespace, labels.PLURAL))


def model_pods(namespace: str) -> Collection:
    """Model pods of a namespace, or of all if it is empty."""
    return Collection(_path("/api/v1", namespace, "pods"), label_selector=labels.DEPLOYMENT)


def _path(prefix: str, namespace: str, plural: str) -> str:
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{inside}/{plural}"


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class Listed(msgspec.Struct):
    """Answer of a list; items are left as they came."""

    metadata: _ListMeta
    items: list[msgspec.Raw]


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class _ScaleSpec(msgspec.Struct, frozen=True):
    replicas: int = 0


class _Scale(msgspec.Struct):
    metadata: _ListMeta
    spec: _ScaleSpec = _ScaleSpec()


class _Failure(msgspec.Struct):
    message: str = ""
    code: int = 0


_list_decoder = msgspec.json.Decoder(Listed)
_event_decoder = msgspec.json.Decoder(Event)
_scale_decoder = msgspec.json.Decoder(_Scale)
_failure_decoder = msgspec.json.Decoder(_Failure)


class Cluster:
    """One connection pool to one API server. Every method raises ApiError and nothing else."""

    def __init__(self, api: Any) -> None:
        self._api = api

    async def close(self) -> None:
        await self._api.close()

    async def list(self, collection: Collection) -> Listed:
        query = {"labelSelector": collection.label_selector}
        async with self._call("GET", collection.path, query=query) as response:
            return _list_decoder.decode(await response.read())

    async def watch(self, collection: Collection, resource_version: str) -> AsyncGenerator[Event]:
        """Events after `resource_version`, until the server ends the watch.

        Raises ApiError with status GONE where the server has forgotten that version.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": collection.label_selector,
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with self._call("GET", collection.path, query=query, limit=WATCH_TIMEOUT) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield _event(line)

    async def read_scale(self, key: Key) -> Scale:
        async with self._call("GET", _scale_path(key)) as response:
            scale = _scale_decoder.decode(await response.read())
            return Scale(scale.spec.replicas, scale.metadata.resource_version)

    async def write_scale(self, key: Key, *, replicas: int, resource_version: str) -> None:
        """Refused (409) if anybody changed the resource since `resource_version`."""
        body = {
            "metadata": {"resourceVersion": resource_version},
            "spec": {"replicas": replicas},
        }
        query = {"fieldManager": labels.SCALE_FIELD_MANAGER_ACTIVATOR}
        async with self._call("PATCH", _scale_path(key), query=query, body=body):
            pass

    @asynccontextmanager
    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
        limit: aiohttp.ClientTimeout = REQUEST_TIMEOUT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            request = await self._api.param_serialize(
                method,
                path,
                query_params=[(name, value) for name, value in (query or {}).items() if value],
                header_params={
                    "Accept": "application/json",
                    "Content-Type": "application/merge-patch+json",
                },
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._api.call_api(*request, _request_timeout=limit)
            async with answer.response as response:
                if not 200 <= response.status <= 299:
                    raise _refused(await response.read(), response.status)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            raise ApiError(f"{type(error).__name__}: {error}") from error


def _event(line: bytes) -> Event:
    event = _event_decoder.decode(line)
    if event.type == "ERROR":
        raise _refused(bytes(event.object), 0)
    return event


def _refused(text: bytes, status: int) -> ApiError:
    try:
        failure = _failure_decoder.decode(text)
    except msgspec.MsgspecError:
        failure = _Failure(message=text[:200].decode(errors="replace"))
    return ApiError(failure.message, status or failure.code)


def _scale_path(key: Key) -> str:
    return f"/apis/{labels.API_VERSION}/namespaces/{key.namespace}/{labels.PLURAL}/{key.name}/scale"


async def connect(kubeconfig: str) -> Cluster:
    """A connection by kubeconfig file, or by the pod's service account, or as kubectl would."""
    # The client's own functions are not typed.
    configuration: Any = client.Configuration()
    load: Any = config
    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ
    if kubeconfig or not in_cluster:
        await load.load_kube_config(
            config_file=kubeconfig or None, client_configuration=configuration
        )
    else:
        load.load_incluster_config(client_configuration=configuration)
    return Cluster(client.ApiClient(configuration))
