"""Keeps a local picture of a collection: list once, then watch, and never lose it.

A lost API server leaves the picture as it is, so requests that wait go on waiting. Only a
successful list replaces it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

import msgspec

from warmgraph_activator.cluster import GONE, ApiError, Cluster, Collection

log = logging.getLogger(__name__)

BACKOFF_SECONDS = (0.2, 5.0)
"""First and longest pause after a failure: quick after a blip, gentle on a struggling server."""

T = TypeVar("T")


class Sink(Protocol[T]):
    """Where the picture is kept."""

    def replace(self, objects: list[T], /) -> None: ...

    def put(self, value: T, /) -> None: ...

    def remove(self, value: T, /) -> None: ...


class _Versioned(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta


_versioned = msgspec.json.Decoder(_Versioned)


class Reflector(Generic[T]):
    def __init__(
        self,
        cluster: Cluster,
        collection: Collection,
        decode: Callable[[bytes], T],
        sink: Sink[T],
    ) -> None:
        self._cluster = cluster
        self._collection = collection
        self._decode = decode
        self._sink = sink
        self.listed = asyncio.Event()
        """Set after the first list."""

    async def run(self) -> None:
        """Until cancelled."""
        pause, longest = BACKOFF_SECONDS
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                async with aclosing(self._cluster.watch(self._collection, version)) as events:
                    async for event in events:
                        version = _versioned.decode(event.object).metadata.resource_version
                        self._apply(event.type, bytes(event.object))
                        pause = BACKOFF_SECONDS[0]
                # A proxy that ends every watch at once must not make this loop spin.
                await asyncio.sleep(BACKOFF_SECONDS[0])
            except ApiError as error:
                if error.status == GONE:
                    version = ""
                log.warning("%s: %s; trying again", self._collection.path, error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
                pause = min(2 * pause, longest)

    async def _list(self) -> str:
        listed = await self._cluster.list(self._collection)
        decoded = (self._try_decode(bytes(item)) for item in listed.items)
        self._sink.replace([value for value in decoded if value is not None])
        self.listed.set()
        return listed.metadata.resource_version

    def _apply(self, kind: str, raw: bytes) -> None:
        if kind == "BOOKMARK":
            return
        value = self._try_decode(raw)
        if value is None:
            return
        if kind == "DELETED":
            self._sink.remove(value)
        else:
            self._sink.put(value)

    def _try_decode(self, raw: bytes) -> T | None:
        try:
            return self._decode(raw)
        except msgspec.MsgspecError as error:
            # One object that cannot be read must not hide all others.
            log.error("%s: ignoring an object: %s", self._collection.path, error)
            return None
