"""One pass over one InferenceDeployment: observe, decide, write what differs.

Nothing here decides: it puts the pure functions in their order. What is kept between passes
(autoscaler samples, settled applies, given ports) only saves work or time when it is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from warmgraph_api.status import Status
from warmgraph_operator import kinds
from warmgraph_operator.activators import Activators, View
from warmgraph_operator.apply import Applier
from warmgraph_operator.client import Cluster
from warmgraph_operator.config import Config
from warmgraph_operator.desired.objects import objects
from warmgraph_operator.desired.support import claim_outdated, wants_claim
from warmgraph_operator.history import Target, choose, recorded_template, superfluous
from warmgraph_operator.metrics import Metrics
from warmgraph_operator.observe import observe
from warmgraph_operator.observed import (
    Observed,
    native_endpoints,
    owned_by,
    replicas_of,
    slice_addresses,
    template_revision,
)
from warmgraph_operator.portmap import PortMap
from warmgraph_operator.problem import Problem
from warmgraph_operator.reports import PodReader
from warmgraph_operator.resource import InferenceDeployment, Key, decode
from warmgraph_operator.revision import revision
from warmgraph_operator.rivals import Rivalry, rivalry
from warmgraph_operator.sampling import Autoscaling, Sampler
from warmgraph_operator.status.compute import status
from warmgraph_operator.status.facts import Decided, gather
from warmgraph_operator.telling import write_scale, write_status
from warmgraph_operator.zero import Plan, Situation, is_replacing, needs_proof, plan

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""After a pass that could not write everything: people mend a quota or a name within minutes."""

UNDER_WAY_SECONDS = 5.0
"""Between passes while something is under way, in case no event tells of its end."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """When to pass again at the latest, and what to look at until then."""

    seconds: float
    sampler: Sampler | None = None


class Reconciler:
    def __init__(
        self,
        cluster: Cluster,
        reader: PodReader,
        config: Config,
        *,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._config = config
        self._metrics = metrics
        self._activators = Activators(cluster, reader, config, clock=clock)
        self._autoscaling = Autoscaling(clock)
        self._applier = Applier(cluster)
        self._ports = PortMap()
        self._known: dict[Key, InferenceDeployment] = {}

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._known.pop(key, None)
        self._ports.forget(key)
        self._autoscaling.forget(key)
        self._applier.forget(key)

    async def everything(self) -> list[InferenceDeployment]:
        """Every resource of the served namespaces."""
        found: list[InferenceDeployment] = []
        for namespace in self._config.namespaces or (None,):
            for entry in await self._cluster.list(kinds.INFERENCE_DEPLOYMENT, namespace):
                try:
                    found.append(decode(entry))
                except msgspec.ValidationError as error:
                    logger.error("%s: %s", entry["metadata"]["name"], error)
        self._known = {infd.key: infd for infd in found}
        return found

    async def reconcile(self, key: Key) -> Outcome:
        """One pass. Raises ApiError and the transport's errors; the caller tries again."""
        raw = await self._cluster.get(kinds.INFERENCE_DEPLOYMENT, key.namespace, key.name)
        if raw is None:
            self.forget(key)
            return Outcome(seconds=self._config.resync_seconds)
        infd = decode(raw)
        self._known[key] = infd
        if infd.being_deleted:
            # The garbage collector takes everything; a write now would race with it.
            return Outcome(seconds=self._config.resync_seconds)
        observed = await observe(self._cluster, self._reader, infd)
        view = await self._activators.view()
        return await self._act(infd, observed, view)

    async def _act(self, infd: InferenceDeployment, observed: Observed, view: View) -> Outcome:
        digest = revision(infd.spec, config_maps=observed.config_maps)
        target = choose(infd, observed, revision=digest, config=self._config)
        rivals = rivalry(infd, observed)
        port = await self._port(infd)
        steps = await self._plan(infd, observed, view, target=target, port=port)
        problems: list[Problem] = []
        if not infd.spec.paused:
            problems = await self._write(
                infd, observed, target=target, steps=steps, rivals=rivals, port=port
            )
        decided = Decided(
            revision=digest,
            failed_revision=target.failed,
            rollback_to=target.runs if target.failed else "",
            port=port,
            standing_in=bool(_own_slice_addresses(infd, observed)),
            activators_configured=self._activators.configured,
            waiting_for_activator=steps.waiting_for_activator,
            problems=problems,
            rival=rivals.problem,
        )
        sampler = Sampler(
            infd=infd,
            observed=observed,
            facts=gather(infd, observed, decided),
            view=view,
            may_scale=rivals.built_in_may_write and not infd.spec.paused,
            activators=self._activators,
            reader=self._reader,
            autoscaling=self._autoscaling,
        )
        decision = sampler.decide()
        if decision is not None and decision.replicas != infd.spec.replicas:
            if await write_scale(self._cluster, self._metrics, infd, decision):
                self._autoscaling.wrote(infd.key, decision.replicas)
            return Outcome(seconds=0.0)  # another spec: everything else follows from that one
        after = status(infd, observed, decided)
        await write_status(self._cluster, self._metrics, infd, after)
        return Outcome(seconds=self._delay(problems, after), sampler=sampler)

    def _delay(self, problems: list[Problem], after: Status) -> float:
        under_way = any(c.type == "Progressing" and c.status == "True" for c in after.conditions)
        longest = self._config.resync_seconds
        if problems:
            return min(RETRY_SECONDS, longest)
        return min(UNDER_WAY_SECONDS, longest) if under_way else longest

    async def _port(self, infd: InferenceDeployment) -> int:
        if not self._activators.configured:
            return 0
        if not infd.status.activator.port:
            await self.everything()
        return self._ports.assign(infd, list(self._known.values()))

    async def _plan(
        self,
        infd: InferenceDeployment,
        observed: Observed,
        view: View,
        *,
        target: Target,
        port: int,
    ) -> Plan:
        current = replicas_of(observed.deployment)
        endpoints = native_endpoints(observed)
        replacing = is_replacing(infd, observed, target.runs)
        standing_in = _own_slice_addresses(infd, observed)
        proven = False
        wanted = infd.spec.replicas
        if standing_in and needs_proof(wanted=wanted, current=current, replacing=replacing):
            proven = await self._activators.answer_for(infd.key, standing_in, port)
        return plan(
            Situation(
                wanted=wanted,
                current=current,
                native_endpoints=endpoints,
                replacing=replacing,
                activators=view.addresses if self._activators.configured and port else None,
                standing_in=standing_in,
                proven=proven,
            )
        )

    async def _write(
        self,
        infd: InferenceDeployment,
        observed: Observed,
        *,
        target: Target,
        steps: Plan,
        rivals: Rivalry,
        port: int,
    ) -> list[Problem]:
        template = target.template
        if not steps.may_replace:
            # The old pods go on until the activators are proven to stand in for them.
            running = template_revision(observed.deployment)
            template = recorded_template(observed, running) or template
        if rivals.deployment_scaled_by_others and observed.deployment is not None:
            steps = replace(steps, replicas=replicas_of(observed.deployment))
        if wants_claim(infd) and observed.cache_claim is not None:
            claim = observed.cache_claim
            if owned_by(claim, infd.metadata.uid) and claim_outdated(infd, claim):
                await self._applier.remove(infd, kinds.CLAIM, claim)
                observed = replace(observed, cache_claim=None)
        problems = await self._applier.apply(
            infd,
            objects(
                infd,
                observed,
                plan=steps,
                template=template,
                record=target.record,
                port=port,
            ),
        )
        if not steps.addresses:
            await self._applier.remove(infd, kinds.ENDPOINT_SLICE, observed.activator_slice)
        for record in superfluous(infd, observed, target):
            await self._applier.remove(infd, kinds.CONTROLLER_REVISION, record)
        return problems


def _own_slice_addresses(infd: InferenceDeployment, observed: Observed) -> tuple[str, ...]:
    own = observed.activator_slice
    return slice_addresses(own) if own and owned_by(own, infd.metadata.uid) else ()
