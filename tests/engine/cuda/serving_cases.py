"""Requests that join and leave an engine over an interpreted GPU; tests/gpu/test_serving.py has 500
of them on a real one.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine import harness
from tests.engine.cuda import tiny
from tests.engine.cuda.gpu import InterpretedGpu
from tests.engine.cuda.serving import (
    Serving,
    check_joining_and_leaving,
    check_outside_buckets,
    check_settings_stay_with_their_request,
    check_switching,
)
from warmgraph_api.report import StepKind

pytestmark = pytest.mark.timeout(600)

PATIENCE_SECONDS = 600
"""Interpreted, a request takes seconds, and ten times that on a busy machine."""

DRAFTS = 2
BUCKETS = [
    (StepKind.DECODE, 1),
    (StepKind.DECODE, 2),
    (StepKind.PREFILL, 16),
    (StepKind.VERIFY, 1),
    (StepKind.VERIFY, 4),
]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    checkpoint = tiny.write(tmp_path_factory.mktemp("model"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        gpu = InterpretedGpu()
        gpu.install(monkeypatch)
        monkeypatch.setattr(harness, "PATIENCE_SECONDS", PATIENCE_SECONDS)
        backend = tiny.backend_on(gpu, checkpoint, max_tokens_per_sequence=1 + DRAFTS)
        serving = Serving(
            backend=backend, buckets=BUCKETS, requests=6, longest_prompt=12, drafts=DRAFTS
        )
        yield serving
        for bucket in serving.graphs.ids():  # while there is still a driver to destroy them
            serving.graphs.disable(bucket, "the end")


def test_requests_that_join_and_leave_get_what_each_gets_alone(serving: Serving) -> None:
    check_joining_and_leaving(serving)
    engine = check_joining_and_leaving(serving, speculative_tokens=DRAFTS)
    assert engine.value("spec_decode_draft_tokens_total") > 0


def test_switching_to_eager_execution_and_back_changes_no_output(serving: Serving) -> None:
    check_switching(serving)


def test_a_step_outside_the_buckets_runs_eagerly_and_is_counted(serving: Serving) -> None:
    check_outside_buckets(serving)


def test_settings_of_a_request_never_reach_another(serving: Serving) -> None:
    check_settings_stay_with_their_request(serving, tokens=2)
