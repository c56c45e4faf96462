"""The warmup: what is restored, captured, checked and reported, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.checkpoints import decode, write_checkpoint
from tests.engine.warmup.starts import D, P, Silent, Start, buckets
from warmgraph_api.report import BucketState, CacheResult, CheckState
from warmgraph_api.resource import Execution, OnCaptureFailure, WarmupOrder, WarmupPolicy
from warmgraph_engine.backends.base import Graph, GraphImage
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.step import Path as StepPath
from warmgraph_engine.warmup.runner import WarmupFailedError
from warmgraph_engine.warmup.tasks import capture_and_check


def test_a_first_start_captures_the_eager_buckets_largest_first(
    model: Path, tmp_path: Path
) -> None:
    start = Start(model, tmp_path / "cache")
    assert start.run() == [(D, 8), (D, 2)]
    assert start.captured == [(P, 16), (D, 4), (D, 1)]
    report = start.report
    assert report.cache.result is CacheResult.MISS
    assert report.cache.key == start.digest
    assert report.check.state is CheckState.PASSED
    assert [span.name for span in report.timeline] == [
        "Restore graphs",
        "Capture graphs",
        "Wait for weights",
        "Known-answer check",
    ]
    assert all(b.bytes > 0 for b in report.buckets if b.state is BucketState.CAPTURED)


def test_graphs_are_captured_while_weights_load_and_checked_when_they_are_there(
    model: Path, tmp_path: Path
) -> None:
    start = Start(model, tmp_path / "cache")
    start.run()
    assert start.restored_before == [[]]
    assert start.loaded_before == ([(P, 16), (D, 4), (D, 1)], [])
    assert start.eager, "the check compares with eager execution"


def test_eager_execution_waits_for_the_weights_too(model: Path, tmp_path: Path) -> None:
    start = Start(model, tmp_path / "cache", execution=Execution.EAGER)
    start.run()
    assert start.loaded_before == ([], [])


def spent(start: Start) -> float:
    """Seconds that it took to have all graphs."""
    return sum(bucket.seconds for bucket in start.report.buckets)


def test_a_second_start_restores_and_captures_nothing(model: Path, tmp_path: Path) -> None:
    first = Start(model, tmp_path / "cache")
    for bucket in first.run():
        first.graphs.capture(bucket)
    first.publish()
    assert first.report.cache.published
    second = Start(model, tmp_path / "cache")
    assert second.run() == []
    assert second.captured == []
    assert second.report.cache.result is CacheResult.HIT
    assert set(second.states().values()) == {BucketState.RESTORED}
    restored = [second, *(Start(model, tmp_path / "cache") for _ in range(2))]
    for other in restored[1:]:
        assert other.run() == []
    # Some milliseconds each: the shortest is the one that nothing else held up.
    assert min(map(spent, restored)) < spent(first)
    result = GraphExecutor(second.backend, second.graphs, second.counts).execute(
        decode((1, 0, [1]))
    )
    assert result.path is StepPath.EXACT


def test_other_weights_are_a_miss_that_names_them(model: Path, tmp_path: Path) -> None:
    first = Start(model, tmp_path / "cache")
    first.run()
    first.publish()
    other = Start(write_checkpoint(tmp_path / "other", seed=1), tmp_path / "cache")
    other.run()
    assert other.report.cache.result is CacheResult.MISS
    assert other.report.cache.field == "model_weights_digest"
    assert set(other.captured) == {(P, 16), (D, 4), (D, 1)}


def test_a_damaged_entry_is_refused_and_replaced(model: Path, tmp_path: Path) -> None:
    first = Start(model, tmp_path / "cache")
    first.run()
    first.publish()
    stored = next((tmp_path / "cache" / first.digest / "images").glob("decode-4-*"))
    stored.write_bytes(stored.read_bytes().replace(b"aten.silu", b"aten.gelu"))
    second = Start(model, tmp_path / "cache")
    second.run()
    assert second.report.cache.result is CacheResult.REFUSED
    assert "checksum" in second.report.cache.message
    assert set(second.states().values()) == {BucketState.CAPTURED, BucketState.PENDING}
    second.publish()
    third = Start(model, tmp_path / "cache")
    third.run()
    assert third.report.cache.result is CacheResult.HIT


def test_a_captured_graph_that_answers_wrong_is_taken_out_of_use(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Start(model, None)
    load = start.backend.player.load

    def broken(image: GraphImage) -> Graph:
        return Silent() if (image.kind, image.size) == (D, 4) else load(image)

    monkeypatch.setattr(start.backend.player, "load", broken)
    start.run()
    bucket = start.graphs[(D, 4)].bucket
    assert bucket.state is BucketState.FALLBACK
    assert bucket.reason == "known-answer check: its logits are not numbers"
    assert start.report.check.state is CheckState.PASSED
    assert start.report.check.message == (
        "0 by stored answer, 3 in full (3 captured now); out of use: decode 4"
    )


def test_a_model_whose_logits_are_not_numbers_never_serves(tmp_path: Path) -> None:
    start = Start(write_checkpoint(tmp_path / "model"), None)
    start.backend.arena.tensor("weights.norm").fill_(float("nan"))
    with pytest.raises(WarmupFailedError, match="not numbers"):
        start.run()
    assert start.report.check.state is CheckState.FAILED


def test_a_failed_capture_falls_back_or_fails_the_start_as_declared(model: Path) -> None:
    falling_back = Start(model, None)
    falling_back.failing = {4}
    falling_back.run()
    assert falling_back.states()[(D, 4)] is BucketState.FALLBACK
    assert falling_back.states()[(D, 1)] is BucketState.CAPTURED
    strict = Start(model, None, on_capture_failure=OnCaptureFailure.FAIL)
    strict.failing = {4}
    with pytest.raises(WarmupFailedError, match="bucket decode 4: capture failed: no room"):
        strict.run()


def test_with_model_loaded_the_eager_buckets_follow_beside_the_traffic(model: Path) -> None:
    start = Start(model, None, warmup_policy=WarmupPolicy.MODEL_LOADED, lazy_capture=False)
    assert start.run() == [(P, 16), (D, 4), (D, 1)]
    assert start.captured == []


def test_without_graphs_nothing_is_captured_or_looked_up(model: Path, tmp_path: Path) -> None:
    start = Start(model, tmp_path / "cache", execution=Execution.EAGER)
    assert start.run() == []
    assert start.report.cache.result is CacheResult.DISABLED
    assert start.report.check.state is CheckState.SKIPPED


def test_a_lazy_capture_that_answers_wrong_is_never_used(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Start(model, None)
    left = start.run()
    load = start.backend.player.load
    monkeypatch.setattr(
        start.backend.player, "load", lambda i: Silent() if i.size == 8 else load(i)
    )
    for bucket in left:
        capture_and_check(start.graphs, start.answers, bucket)
    assert start.states()[(D, 2)] is BucketState.CAPTURED
    assert start.states()[(D, 8)] is BucketState.FALLBACK


def test_a_lazy_prefill_bucket_passes_its_check_beside_padding(model: Path) -> None:
    """The check's one token has the padding of a whole chunk beside it."""
    start = Start(model, None, buckets=buckets(eager=[], lazy=[(P, 32)]))
    for bucket in start.run():
        capture_and_check(start.graphs, start.answers, bucket)
    assert start.states() == {(P, 32): BucketState.CAPTURED}


def test_an_empty_bucket_list_is_warm_at_once(model: Path) -> None:
    start = Start(model, None, buckets=())
    assert start.run() == []
    assert start.report.check.state is CheckState.PASSED


def test_what_traffic_wanted_comes_first_at_the_next_start(model: Path, tmp_path: Path) -> None:
    first = Start(model, tmp_path / "cache", warmup_order=WarmupOrder.LEARNED)
    first.run()
    executor = GraphExecutor(first.backend, first.graphs, first.counts)
    for _ in range(5):
        executor.execute(decode((1, 0, [1]), (2, 0, [2])))
    executor.execute(decode((1, 0, [1])))
    first.publish()
    second = Start(model, tmp_path / "cache", warmup_order=WarmupOrder.LEARNED)
    assert second.run() == [(D, 2), (D, 8)]
    second.publish()
    hits = {
        (b.kind, b.size): b.hits
        for b in Start(model, tmp_path / "cache").store.look_up().plan.buckets
    }
    assert hits[(D, 2)] == 5
    assert hits[(D, 1)] == 1
