"""The border to kopf: its watches wake the loop, and it does nothing else.

Only raw event handlers are registered. kopf's daemons, timers and change handlers would put a
finalizer and annotations on the resource: then `kubectl delete` hangs while the operator is gone,
and every note that kopf writes wakes its own watch. See docs/decisions.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Sequence
from typing import Any

import kopf

from warmgraph_api import labels
from warmgraph_operator.client import in_cluster
from warmgraph_operator.kinds import INFERENCE_DEPLOYMENT, WATCHED_KINDS, Kind
from warmgraph_operator.resource import Key
from warmgraph_operator.wake import Waker

SERVER_TIMEOUT_SECONDS = 240
"""A watch is renewed at least this often, before proxies that end idle connections at 5 min."""

CLIENT_TIMEOUT_SECONDS = 300.0
"""A watch that the server did not end by its own timeout is dead."""

INACTIVITY_TIMEOUT_SECONDS = 70.0
"""The API server sends a bookmark a minute: silence beyond it means a dead connection. kopf opens
a new watch then; the sweep (sweep.py) notices within a resync what a dead one kept back."""

CONNECT_TIMEOUT_SECONDS = 10.0

ERROR_BACKOFFS = (1, 2, 5, *[10] * 8640)
"""Seconds between tries while the API server is away: for a day, after which a restart is as good.
The sweep goes on meanwhile, and finds its return as soon."""


def settings() -> kopf.OperatorSettings:
    chosen = kopf.OperatorSettings()
    # Two operators do the same writes at most; peering would make one freeze the other.
    chosen.peering.standalone = True
    # Namespaces and CRDs are not watched: the flags say what is served.
    chosen.scanning.disabled = True
    # The operator publishes its own events.
    chosen.posting.enabled = False
    # A queue here holds wake-ups alone: nothing is lost with it, and nobody waits for it.
    chosen.queueing.idle_timeout = 1.0
    chosen.queueing.exit_timeout = 0.1
    chosen.networking.error_backoffs = ERROR_BACKOFFS
    chosen.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    chosen.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    chosen.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
    chosen.watching.inactivity_timeout = INACTIVITY_TIMEOUT_SECONDS
    for kind in WATCHED_KINDS:
        # Filtered by the API server: other people's pods never reach this process.
        chosen.watching.label_selectors[_selector(kind)] = labels.DEPLOYMENT
    return chosen


def _selector(kind: Kind) -> tuple[str, str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural


async def watch(waker: Waker, namespaces: Sequence[str]) -> None:
    """Until cancelled. Raises what ends kopf by itself, which nothing should.

    kopf gets a thread and a loop of its own: where it ends, it cancels every task of its loop that
    is younger than itself, also other people's, and in the main thread it takes over the signals.
    """
    loop, stop = asyncio.get_running_loop(), threading.Event()
    running = asyncio.create_task(
        asyncio.to_thread(
            kopf.run,
            registry=registry(waker, loop),
            settings=settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )
    )
    try:
        await asyncio.shield(running)
    finally:
        stop.set()
        await running


def registry(waker: Waker, loop: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if in_cluster():
            return kopf.login_with_service_account(**kwargs)
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event(*_selector(INFERENCE_DEPLOYMENT), registry=handlers)
    async def resource(
        namespace: str | None, name: str, event: kopf.RawEvent, meta: kopf.Meta, **_: Any
    ) -> None:
        key = Key(namespace or "", name)
        if event["type"] == "DELETED":
            loop.call_soon_threadsafe(waker.forget, key)
        else:
            loop.call_soon_threadsafe(waker.tell, key, meta["resourceVersion"])

    for kind in WATCHED_KINDS:
        # What a child is or does is read by the pass; here only whose it is counts.
        kopf.on.event(*_selector(kind), registry=handlers, id=f"wake-{kind.plural}")(
            _wake(waker, loop)
        )
    return handlers


def _wake(waker: Waker, loop: asyncio.AbstractEventLoop) -> Any:
    async def child(namespace: str | None, meta: kopf.Meta, **_: Any) -> None:
        owner = meta.get("labels", {}).get(labels.DEPLOYMENT)
        if owner:
            key = Key(namespace or "", owner)
            loop.call_soon_threadsafe(functools.partial(waker.wake, key, cause="event"))

    return child
