"""Writing objects: by server-side apply, only where something differs, and only our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warmgraph_api.reasons import Reason
from warmgraph_operator.client import CONFLICT, ApiError, Cluster
from warmgraph_operator.differences import applied_stamp, is_applied, stamp
from warmgraph_operator.kinds import Kind, Object, Wanted
from warmgraph_operator.observed import being_deleted, left_by_predecessor, owned_by
from warmgraph_operator.problem import Problem
from warmgraph_operator.resource import InferenceDeployment, Key


@dataclass
class Applier:
    """Keeps, for each object, what its last apply led to."""

    cluster: Cluster
    _settled: dict[Key, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """By resource and uid: (stamp applied, resourceVersion that came of it). Where the API server
    stores a field in another form than it was sent, the comparison alone would apply it for
    ever."""

    async def apply(self, infd: InferenceDeployment, objects: Sequence[Wanted]) -> list[Problem]:
        """Applies each; what cannot be is returned as a problem, and the rest goes on."""
        problems = [await self._one(infd, wanted) for wanted in objects]
        return [problem for problem in problems if problem]

    async def remove(self, infd: InferenceDeployment, kind: Kind, live: Object | None) -> None:
        """Deletes the object if it is the resource's own and not on its way out already."""
        if live and owned_by(live, infd.metadata.uid) and not being_deleted(live):
            await self.cluster.delete(kind, live)

    async def _one(self, infd: InferenceDeployment, wanted: Wanted) -> Problem | None:
        kind, live, name = wanted.kind, wanted.live, wanted.body["metadata"]["name"]
        body = stamp(wanted.body)
        if live is not None:
            if not owned_by(live, infd.metadata.uid):
                return _foreign(infd, kind, live)
            if being_deleted(live):
                return None  # its end wakes the next pass, which makes it anew
            if is_applied(body, live) or self._is_settled(infd, body, live):
                return None
            # Never an object that took the name in between.
            body = {**body, "metadata": {**body["metadata"], "uid": live["metadata"]["uid"]}}
        try:
            after = await self.cluster.apply(kind, body)
        except ApiError as error:
            if error.status == CONFLICT:
                return None  # deleted or replaced since it was read; the next pass sees it
            return Problem.of(Reason.APPLY_FAILED, f"{kind.kind} {name}: {error.message}")
        metadata = after["metadata"]
        settled = self._settled.setdefault(infd.key, {})
        settled[metadata["uid"]] = (applied_stamp(body), metadata["resourceVersion"])
        return None

    def _is_settled(self, infd: InferenceDeployment, body: Object, live: Object) -> bool:
        metadata = live["metadata"]
        known = self._settled.get(infd.key, {}).get(metadata["uid"])
        return known == (applied_stamp(body), metadata["resourceVersion"])

    def forget(self, key: Key) -> None:
        """The resource is gone, and its objects with it."""
        self._settled.pop(key, None)


def _foreign(infd: InferenceDeployment, kind: Kind, live: Object) -> Problem | None:
    name = live["metadata"]["name"]
    if being_deleted(live) or left_by_predecessor(live, name=infd.name, uid=infd.metadata.uid):
        return None  # about to go; its end wakes the next pass
    return Problem.of(
        Reason.NAME_CONFLICT,
        f"{kind.kind} {name} exists and does not belong to this resource: delete or rename it, or "
        "give the InferenceDeployment another name",
    )
