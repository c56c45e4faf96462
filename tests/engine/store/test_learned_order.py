"""What traffic wanted of one process decides the order of the next one, and the report shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.checkpoints import decode, prefill, write_servable_checkpoint
from tests.engine.store.engines import D, Engine, P
from warmgraph_api.report import BucketState, CacheResult
from warmgraph_api.resource import WarmupOrder

CAPTURED, RESTORED = BucketState.CAPTURED, BucketState.RESTORED


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_servable_checkpoint(tmp_path_factory.mktemp("model"))


def start(model: Path, cache: Path, **settings: Any) -> Engine:
    return Engine(model, cache, **{"warmup_order": WarmupOrder.LEARNED, **settings})


def serve(engine: Engine) -> None:
    """Traffic that wants decode 2 most, then decode 1, then prefill 16, and decode 4 never."""
    for _ in range(5):
        engine.executor.execute(decode((1, 0, [1]), (2, 0, [2])))
    for _ in range(3):
        engine.executor.execute(decode((1, 0, [1])))
    engine.executor.execute(prefill([1, 2, 3], [1]))
    engine.close()


HITS = {(D, 2): 5, (D, 1): 3, (P, 16): 1, (D, 4): 0}
LEARNED = [(D, 2), (D, 1), (P, 16), (D, 4)]
LARGEST_FIRST = [(P, 16), (D, 4), (D, 2), (D, 1)]


def order(engine: Engine) -> list[Any]:
    return [(kind, size) for _, kind, size in engine.order]


def hits(engine: Engine) -> dict[Any, int]:
    return {(bucket.kind, bucket.size): bucket.hits for bucket in engine.report.buckets}


def test_the_next_start_restores_in_the_order_of_traffic(model: Path, tmp_path: Path) -> None:
    first = start(model, tmp_path)
    assert order(first) == LARGEST_FIRST, "nothing was learned yet"
    first.publish()
    serve(first)
    second = start(model, tmp_path)
    assert second.order == [(RESTORED, *bucket) for bucket in LEARNED]
    assert hits(second) == HITS
    second.close()


def test_a_new_version_of_the_model_is_captured_in_the_order_of_the_old_ones_traffic(
    model: Path, tmp_path: Path
) -> None:
    """When everything has to be captured anew, the order matters most."""
    first = start(model, tmp_path, model_revision="v1")
    first.publish()
    serve(first)
    second = start(model, tmp_path, model_revision="v2")
    assert second.report.cache.result is CacheResult.MISS
    assert second.order == [(CAPTURED, *bucket) for bucket in LEARNED]
    assert hits(second) == HITS
    second.close()


def test_what_was_learned_grows_over_starts_and_processes(model: Path, tmp_path: Path) -> None:
    first = start(model, tmp_path)
    first.publish()
    serve(first)
    together = [start(model, tmp_path) for _ in range(2)]
    for engine in together:
        serve(engine)
    last = start(model, tmp_path)
    assert hits(last) == {bucket: 3 * count for bucket, count in HITS.items()}
    last.close()


def test_a_killed_process_has_told_what_it_knew_when_it_published(
    model: Path, tmp_path: Path
) -> None:
    first = start(model, tmp_path)
    first.executor.execute(decode((1, 0, [1])))
    first.publish()
    first.executor.execute(decode((1, 0, [1])))  # and then it is gone
    second = start(model, tmp_path)
    assert hits(second)[(D, 1)] == 1
    second.close()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (WarmupOrder.LARGEST_FIRST, LARGEST_FIRST),
        (WarmupOrder.SMALLEST_FIRST, LARGEST_FIRST[::-1]),
    ],
)
def test_the_other_orders_do_not_learn(
    model: Path, tmp_path: Path, policy: WarmupOrder, expected: list[Any]
) -> None:
    first = start(model, tmp_path, model_revision="v1")
    first.publish()
    serve(first)
    second = start(model, tmp_path, model_revision="v2", warmup_order=policy)
    assert order(second) == expected
    assert hits(second) == HITS, "it is shown all the same"
    second.close()


def test_the_stage_says_why_a_bucket_has_its_turn(model: Path, tmp_path: Path) -> None:
    first = start(model, tmp_path, model_revision="v1")
    first.publish()
    serve(first)
    second = start(model, tmp_path, model_revision="v2")
    assert second.captures == [
        "decode 2 (1 of 4, wanted 5 times before)",
        "decode 1 (2 of 4, wanted 3 times before)",
        "prefill 16 (3 of 4, wanted 1 times before)",
        "decode 4 (4 of 4, wanted 0 times before)",
    ]
    second.close()
