"""Reading everything of one resource. The only I/O before a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

from warmgraph_api import labels
from warmgraph_operator import kinds
from warmgraph_operator.claims import is_pending, mounted_claims
from warmgraph_operator.client import FORBIDDEN, NOT_FOUND, ApiError, Cluster
from warmgraph_operator.desired.metadata import claim_name, slice_name
from warmgraph_operator.desired.support import wants_claim
from warmgraph_operator.kinds import Kind, Object
from warmgraph_operator.observed import Observed, is_activator_slice, live, owned_by
from warmgraph_operator.pods import needs_events
from warmgraph_operator.references import config_maps_of
from warmgraph_operator.reports import PodReader
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.revision import config_map_digest

# What a pod waits for that nothing but an event names. Others, such as a startup probe's first
# misses, are part of every start.
_POD_WARNINGS = frozenset(
    {
        "FailedMount",
        "FailedAttachVolume",
        "FailedMapVolume",
        "FailedCreatePodSandBox",
        "NetworkNotReady",
    }
)


async def observe(cluster: Cluster, reader: PodReader, infd: InferenceDeployment) -> Observed:
    """Raises ApiError where the API server does not answer: a pass never acts on a guess."""
    namespace, name = infd.key
    now = datetime.now(UTC)
    own_claim = claim_name(infd) if wants_claim(infd) else ""
    claims, pods = await asyncio.gather(
        _by_name(cluster, kinds.CLAIM, namespace, {own_claim, *mounted_claims(infd)} - {""}),
        cluster.list(kinds.POD, namespace, labels=infd.selector),
    )
    # Two groups of reads, since what is asked of pods and claims depends on which there are.
    of_service = f"{labels.SERVICE_NAME}={name}"
    try:
        async with asyncio.TaskGroup() as group:
            get = group.create_task
            deployment = get(cluster.get(kinds.DEPLOYMENT, namespace, name))
            service = get(cluster.get(kinds.SERVICE, namespace, name))
            account = get(cluster.get(kinds.SERVICE_ACCOUNT, namespace, name))
            budget = get(cluster.get(kinds.BUDGET, namespace, name))
            own_slice = get(cluster.get(kinds.ENDPOINT_SLICE, namespace, slice_name(infd)))
            slices = get(cluster.list(kinds.ENDPOINT_SLICE, namespace, labels=of_service))
            records = get(cluster.list(kinds.CONTROLLER_REVISION, namespace, labels=infd.selector))
            config_maps = get(_digests(cluster, namespace, config_maps_of(infd.spec.template)))
            autoscalers = get(_autoscalers(cluster, namespace))
            # A stopping pod may not answer any more, and nothing hangs on what it says.
            states = get(reader.states(live(pods)))
            stuck = [pod for pod in pods if needs_events(pod, now)]
            warnings = get(_warnings(cluster, namespace, stuck, claims.values()))
            classes = get(_storage_classes(cluster, claims.values()))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the others say the same of the same API server
    return Observed(
        now=now,
        deployment=deployment.result(),
        service=service.result(),
        service_account=account.result(),
        budget=budget.result(),
        cache_claim=claims.get(own_claim),
        activator_slice=own_slice.result(),
        native_slices=tuple(e for e in slices.result() if not is_activator_slice(e)),
        records=tuple(e for e in records.result() if owned_by(e, infd.metadata.uid)),
        pods=tuple(pods),
        reports=states.result(),
        config_maps=config_maps.result(),
        claims={claim: claims[claim] for claim in mounted_claims(infd)},
        storage_classes=classes.result(),
        warnings=warnings.result(),
        autoscalers=autoscalers.result(),
    )


async def _by_name(
    cluster: Cluster, kind: Kind, namespace: str, names: Iterable[str]
) -> dict[str, Object | None]:
    names = tuple(names)
    found = await asyncio.gather(*(cluster.get(kind, namespace, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _digests(cluster: Cluster, namespace: str, names: tuple[str, ...]) -> dict[str, str]:
    found = await _by_name(cluster, kinds.CONFIG_MAP, namespace, names)
    return {name: config_map_digest(entry) for name, entry in found.items()}


async def _autoscalers(cluster: Cluster, namespace: str) -> tuple[Object, ...]:
    lists = await asyncio.gather(
        _allowed(cluster, kinds.AUTOSCALER, namespace),
        _allowed(cluster, kinds.SCALED_OBJECT, namespace),
    )
    return tuple(entry for entries in lists for entry in entries or [])


async def _allowed(
    cluster: Cluster, kind: Kind, namespace: str | None, *, fields: str = ""
) -> list[Object] | None:
    """None where the kind is not installed or may not be read: nothing depends on it."""
    try:
        return await cluster.list(kind, namespace, fields=fields)
    except ApiError as error:
        if error.status in (NOT_FOUND, FORBIDDEN):
            return None
        raise


async def _storage_classes(
    cluster: Cluster, claims: Iterable[Object | None]
) -> tuple[Object, ...] | None:
    if not any(is_pending(claim) for claim in claims):
        return None
    classes = await _allowed(cluster, kinds.STORAGE_CLASS, None)
    return None if classes is None else tuple(classes)


async def _warnings(
    cluster: Cluster, namespace: str, pods: list[Object], claims: Iterable[Object | None]
) -> dict[str, str]:
    """Latest warning of whatever waits, by object name. pods: those that need their events."""
    waiting = [claim for claim in claims if claim is not None and is_pending(claim)]
    waiting += pods
    uids = [entry["metadata"]["uid"] for entry in waiting]
    lists = await asyncio.gather(
        *(
            _allowed(
                cluster,
                kinds.CORE_EVENT,
                namespace,
                fields=f"involvedObject.uid={uid},type=Warning",
            )
            for uid in uids
        )
    )
    latest: dict[str, str] = {}
    for entry, events in zip(waiting, lists, strict=True):
        told = [
            event
            for event in events or []
            if entry not in pods or event.get("reason") in _POD_WARNINGS
        ]
        if told:
            newest = max(told, key=_event_time)
            latest[entry["metadata"]["name"]] = newest.get("message") or newest.get("reason", "")
    return latest


def _event_time(event: Object) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp", "")
    )
