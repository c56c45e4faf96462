"""Which template the pods should have: the spec's, in the form it was first given, or the last
good one after a failed rollout. Pure functions of what is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warmgraph_api import labels
from warmgraph_api.reasons import Reason
from warmgraph_api.resource import OnRolloutFailure
from warmgraph_operator.config import Config
from warmgraph_operator.desired.pod import pod_template
from warmgraph_operator.desired.workload import next_number, revision_record
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import Observed, live_pods, revision_of, template_revision
from warmgraph_operator.problem import Problem
from warmgraph_operator.resource import InferenceDeployment
from warmgraph_operator.status.facts import deadline

FAILED = f"{labels.GROUP}/rollout-failed"
"""Annotation of a revision's record that was rolled back: why. While it stands, the revision is
not tried again; deleting the record is how to have it tried again."""


@dataclass(frozen=True, kw_only=True)
class Target:
    revision: str
    """Of the current spec."""
    template: Object
    """For the Deployment."""
    runs: str
    """Revision of that template: the spec's, or the one rolled back to."""
    failed: str = ""
    """Why the spec's revision was rolled back."""
    record: Object
    """The record of the spec's revision, to be written if it is not there as it is."""


def choose(
    infd: InferenceDeployment, observed: Observed, *, revision: str, config: Config
) -> Target:
    """The template of each revision is made once. A later operator that would make another one
    of the same spec takes the recorded one, so that it restarts no pod."""
    known = _record(observed, revision)
    template = recorded_template(observed, revision) or pod_template(
        infd, revision=revision, config=config
    )
    number = known["revision"] if known else next_number(observed.records)
    record = revision_record(infd, revision=revision, template=template, number=number)
    failed = _failed(infd, observed, revision, known)
    if not failed:
        return Target(revision=revision, template=template, runs=revision, record=record)
    record["metadata"]["annotations"] = {FAILED: failed.message}
    good = infd.status.current_revision
    previous = recorded_template(observed, good)
    assert previous is not None, "a revision counts as failed only beside a good one"
    return Target(
        revision=revision, template=previous, runs=good, failed=failed.message, record=record
    )


def recorded_template(observed: Observed, revision: str) -> Object | None:
    """As recorded, else as the Deployment has it now (a record may have been deleted)."""
    record = _record(observed, revision)
    if record is not None:
        template: Object = record["data"]["template"]
        return template
    if observed.deployment is not None and template_revision(observed.deployment) == revision:
        live: Object = observed.deployment["spec"]["template"]
        return live
    return None


def _record(observed: Observed, revision: str) -> Object | None:
    return next((entry for entry in observed.records if revision_of(entry) == revision), None)


def _failed(
    infd: InferenceDeployment, observed: Observed, revision: str, record: Object | None
) -> Problem | None:
    """Whether this revision was, or is now to be, rolled back."""
    good = infd.status.current_revision
    if infd.spec.rollout.on_failure is not OnRolloutFailure.ROLLBACK:
        return None
    if not good or good == revision or recorded_template(observed, good) is None:
        return None
    marked = ((record or {"metadata": {}})["metadata"].get("annotations") or {}).get(FAILED)
    if marked:
        return Problem(Reason.ROLLED_BACK, marked)
    exceeded = deadline(observed, revision)
    if exceeded is None:
        return None
    return Problem.of(Reason.ROLLED_BACK, f"{exceeded.message}; rolled back to revision {good}")


def superfluous(infd: InferenceDeployment, observed: Observed, target: Target) -> Iterable[Object]:
    """Records beyond the history limit that nothing runs."""
    used = {target.revision, target.runs, infd.status.current_revision}
    used |= {revision_of(pod) for pod in live_pods(observed)}
    used.add(template_revision(observed.deployment))
    unused = [entry for entry in observed.records if revision_of(entry) not in used]
    unused.sort(key=lambda entry: entry["revision"], reverse=True)
    return unused[infd.spec.rollout.history_limit :]
