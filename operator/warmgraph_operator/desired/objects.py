"""All objects of one pass, in the order they are written in."""

from __future__ import annotations

from warmgraph_operator import kinds
from warmgraph_operator.desired.network import activator_slice, service
from warmgraph_operator.desired.support import (
    cache_claim,
    disruption_budget,
    service_account,
    wants_claim,
)
from warmgraph_operator.desired.workload import deployment
from warmgraph_operator.kinds import Object, Wanted
from warmgraph_operator.observed import Observed, revision_of
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.zero import Plan


def objects(
    infd: InferenceDeployment,
    observed: Observed,
    *,
    plan: Plan,
    template: Object,
    record: Object,
    port: int,
) -> list[Wanted]:
    """What pods need comes before the Deployment; the activators come before a scale-down.

    A claim that was made and is no longer wanted stays until the resource goes: its graphs are
    worth keeping, and pods of an earlier revision may still mount it.
    """
    wanted = [
        Wanted(kinds.SERVICE_ACCOUNT, service_account(infd), observed.service_account),
        Wanted(kinds.SERVICE, service(infd), observed.service),
    ]
    if wants_claim(infd):
        claim = cache_claim(infd, observed.cache_claim)
        wanted.append(Wanted(kinds.CLAIM, claim, observed.cache_claim))
    if plan.addresses:
        body = activator_slice(infd, addresses=plan.addresses, port=port)
        wanted.append(Wanted(kinds.ENDPOINT_SLICE, body, observed.activator_slice))
    live_record = next(
        (entry for entry in observed.records if revision_of(entry) == revision_of(record)), None
    )
    workload = deployment(infd, replicas=plan.replicas, template=template)
    return [
        *wanted,
        Wanted(kinds.CONTROLLER_REVISION, record, live_record),
        Wanted(kinds.DEPLOYMENT, workload, observed.deployment),
        Wanted(kinds.BUDGET, disruption_budget(infd), observed.budget),
    ]
