"""Requests that join and leave an engine on the GPU: each gets what it gets alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice, product

import pytest

from tests.engine.cuda.models import llama_values
from tests.engine.cuda.serving import (
    Serving,
    check_joining_and_leaving,
    check_outside_buckets,
    check_settings_stay_with_their_request,
    check_switching,
    nearly,
    told,
)
from tests.engine.harness import sequence
from tests.engine.requests import one_of_each_kind
from tests.gpu.conftest import Served
from warmgraph_api.report import StepKind
from warmgraph_api.resource import Execution
from warmgraph_engine.scheduler.sequence import Sequence
from warmgraph_engine.step import Path, PathReason

pytestmark = pytest.mark.gpu

REQUESTS = 500
DRAFTS = 3
BUCKETS = [
    *((StepKind.DECODE, n) for n in (1, 2, 8, 16)),
    *((StepKind.PREFILL, n) for n in (16, 64, 256)),
    *((StepKind.VERIFY, n) for n in (1, 8, 16)),
]
LONGEST_PROMPT = 300
"""More than a split of attention has."""


@pytest.fixture(scope="module")
def serving(serve: Callable[..., Served]) -> Serving:
    model = serve(
        llama_values(),
        kv_cache_bytes=2 << 20,
        max_batch_size=16,
        max_batch_tokens=256,
        max_tokens_per_sequence=1 + DRAFTS,
    )
    return Serving(
        backend=model.backend,
        buckets=BUCKETS,
        requests=REQUESTS,
        longest_prompt=LONGEST_PROMPT,
        drafts=DRAFTS,
    )


def test_500_requests_that_join_and_leave_get_what_each_gets_alone(serving: Serving) -> None:
    check_joining_and_leaving(serving)


def test_the_same_requests_get_the_same_with_drafts(serving: Serving) -> None:
    engine = check_joining_and_leaving(serving, speculative_tokens=DRAFTS)
    assert engine.value("spec_decode_draft_tokens_total") > 0


def test_accepted_drafts_are_the_tokens_of_plain_decoding(serving: Serving) -> None:
    def repeating() -> list[Sequence]:
        """Outputs that go on as their prompts do, with rare exceptions."""
        params = {"max_tokens": 60, "temperature": 1.0, "logprobs": 0}
        return [
            sequence([token] * 9, seed=token, logit_bias={token: 12.0}, **params)
            for token in range(10)
        ]

    with serving.engine(Execution.EAGER) as engine:
        alone = [engine.generate(one)[0] for one in repeating()]
    with serving.engine(speculative_tokens=DRAFTS) as engine:
        assert told(engine.generate(*repeating())) == told(alone, nearly)
    assert engine.value("spec_decode_accepted_tokens_total") > 0
    assert serving.steps(Path.PADDED, PathReason.LARGER_BUCKET, StepKind.VERIFY) > 0


def test_preempted_requests_go_on_as_if_nothing_had_happened(serving: Serving) -> None:
    def growing() -> list[Sequence]:
        """More than the KV blocks hold, once they have grown."""
        params = {"max_tokens": 200, "temperature": 1.0}
        return [sequence([number] * 10, seed=number, **params) for number in range(16)]

    with serving.engine(Execution.EAGER) as engine:
        alone = [engine.generate(one)[0] for one in growing()]
    with serving.engine() as engine:
        assert engine.generate(*growing()) == alone
    assert engine.value("preemptions_total") > 0


def test_serving_asks_the_driver_for_no_memory(serving: Serving) -> None:
    """Whatever the requests ask for, alone and in batches of any size, with graphs and without."""
    backend = serving.backend
    before = backend.allocations
    assert before > 0
    for execution, drafts in product(Execution, (0, DRAFTS)):
        with serving.engine(execution, speculative_tokens=drafts) as engine:
            for at_once in (1, 2, 8, 16):
                kinds = chain(one_of_each_kind(), one_of_each_kind())
                while batch := list(islice(kinds, at_once)):
                    engine.loop.submit(batch)
                    engine.wait(batch)
    assert backend.allocations == before


def test_switching_to_eager_execution_and_back_changes_no_output(serving: Serving) -> None:
    check_switching(serving)


def test_a_step_outside_the_buckets_runs_eagerly_and_is_counted(
    serve: Callable[..., Served],
) -> None:
    model = serve(llama_values())
    buckets = [(StepKind.DECODE, 1), (StepKind.DECODE, 4), (StepKind.PREFILL, 64)]
    check_outside_buckets(
        Serving(backend=model.backend, buckets=buckets, requests=0, longest_prompt=0)
    )


def test_settings_of_a_request_never_reach_another(serving: Serving) -> None:
    check_settings_stay_with_their_request(serving, tokens=16)
