"""Which template the pods get: recorded once, and the last good one after a failed rollout."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.builders import CONFIG, deployment, infd, observed, owner, pod, warming
from warmgraph_api import labels
from warmgraph_operator.history import FAILED, choose, superfluous
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import Observed

LATE = {"Progressing": {"status": "False", "reason": "ProgressDeadlineExceeded"}}
SERVED = {"currentRevision": "r1", "updatedRevision": "r2"}
ROLLBACK = {"onFailure": "Rollback"}


def record(revision: str, number: int, *, failed: str = "") -> Object:
    metadata: Object = {
        "name": f"tiny-{revision}",
        "labels": {labels.REVISION: revision},
        "ownerReferences": owner(),
    }
    if failed:
        metadata["annotations"] = {FAILED: failed}
    return {"metadata": metadata, "revision": number, "data": {"template": {"is": revision}}}


def stuck(**changes: Any) -> Observed:
    """A rollout of r2 past its deadline, with r1 serving."""
    settings: dict[str, Any] = {
        "deployment": deployment(revision="r2", conditions=LATE),
        "records": (record("r1", 1), record("r2", 2)),
    }
    new = pod("tiny-2", revision="r2", ready=False)
    return observed(pod(), new, **{**settings, **changes})


def test_a_new_revision_is_rendered_and_recorded() -> None:
    target = choose(infd(), observed(deployment=None), revision="r1", config=CONFIG)
    assert target.runs == target.revision == "r1"
    assert target.record["data"]["template"] == target.template
    assert target.record["revision"] == 1
    assert target.record["metadata"]["name"] == "tiny-r1"
    assert target.template["spec"]["containers"][0]["image"] == "engine:1"


def test_a_recorded_revision_keeps_its_template_whatever_is_rendered_today() -> None:
    seen = observed(pod(), records=(record("r1", 4),))
    target = choose(infd(), seen, revision="r1", config=CONFIG)
    assert target.template == {"is": "r1"}
    assert target.record["revision"] == 4


def test_a_lost_record_is_taken_from_the_deployment() -> None:
    seen = observed(pod(), records=())
    target = choose(infd(), seen, revision="r1", config=CONFIG)
    assert seen.deployment is not None
    assert target.template == seen.deployment["spec"]["template"]


def test_back_to_an_earlier_revision_takes_its_template() -> None:
    seen = observed(pod(), records=(record("r1", 1), record("r2", 2)))
    assert choose(infd(), seen, revision="r2", config=CONFIG).template == {"is": "r2"}
    third = choose(infd(), seen, revision="r3", config=CONFIG)
    assert third.record["revision"] == 3


def test_a_failed_rollout_goes_back_where_it_is_asked_to() -> None:
    target = choose(infd(rollout=ROLLBACK, status=SERVED), stuck(), revision="r2", config=CONFIG)
    assert (target.runs, target.template) == ("r1", {"is": "r1"})
    assert "rolled back to revision r1" in target.failed
    assert target.record["metadata"]["annotations"][FAILED] == target.failed


def test_a_failed_rollout_is_held_where_it_is_not() -> None:
    target = choose(infd(status=SERVED), stuck(), revision="r2", config=CONFIG)
    assert (target.runs, target.failed) == ("r2", "")


def test_what_was_rolled_back_stays_so_after_a_restart() -> None:
    """Then the Deployment is well again, and only the record knows."""
    back = observed(
        pod(), records=(record("r1", 1), record("r2", 2, failed="r2 failed; rolled back"))
    )
    resource = infd(rollout=ROLLBACK, status=SERVED)
    target = choose(resource, back, revision="r2", config=CONFIG)
    assert (target.runs, target.failed) == ("r1", "r2 failed; rolled back")
    # Another spec is tried, and so is the same one once its record is deleted.
    assert choose(resource, back, revision="r3", config=CONFIG).runs == "r3"
    forgotten = observed(pod(), records=(record("r1", 1),))
    assert choose(resource, forgotten, revision="r2", config=CONFIG).runs == "r2"


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        pytest.param({}, {}, id="nothing ever served"),
        pytest.param({"currentRevision": "r2"}, {}, id="it served before"),
        pytest.param(SERVED, {"records": (record("r2", 2),)}, id="the good template is lost"),
        pytest.param(SERVED, {"reports": {"tiny-2": warming()}}, id="its warmup moves"),
    ],
)
def test_no_rollback_into_nothing(status: Object, changes: Any) -> None:
    resource = infd(rollout=ROLLBACK, status=status)
    assert choose(resource, stuck(**changes), revision="r2", config=CONFIG).runs == "r2"


def test_old_records_go_and_used_ones_stay() -> None:
    records = tuple(record(f"r{number}", number) for number in range(1, 7))
    resource = infd(rollout={"historyLimit": 1}, status={"currentRevision": "r2"})
    seen = observed(pod(revision="r3"), deployment=deployment(revision="r4"), records=records)
    target = choose(resource, seen, revision="r6", config=CONFIG)
    gone = [entry["metadata"]["name"] for entry in superfluous(resource, seen, target)]
    assert gone == ["tiny-r1"]
