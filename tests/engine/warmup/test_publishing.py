"""What is done between steps for the next process: proofs, captures, answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.warmup.starts import (
    D,
    P,
    Silent,
    Start,
    buckets,
    in_full,
    published,
    restored,
    run_all,
    stored_images,
)
from warmgraph_api.report import BucketState
from warmgraph_api.resource import CacheMode
from warmgraph_engine.backends.base import CaptureError
from warmgraph_engine.counts import CheckReason
from warmgraph_engine.shapes import StepShape


def test_a_read_only_cache_gets_no_better_answer(start: Callable[..., Start]) -> None:
    published(start(known_answer_check=False))
    second = start(cache_mode=CacheMode.READ_ONLY)
    run_all(second.work(second.run()))
    assert restored(start()).checks()[(D, 1)] == in_full(CheckReason.NO_ANSWER)


def test_lazily_captured_buckets_get_their_answers_once_no_request_has_kv(
    start: Callable[..., Start],
) -> None:
    mixed = {"buckets": buckets(eager=[(D, 1), (P, 32)], lazy=[(D, 4), (P, 8)])}
    first = start(**mixed)
    work = first.work(first.run())
    # Requests hold KV, and nothing may touch it.
    kv = [first.backend.arena.tensor(r.name) for r in first.backend.layout if r.group == "kv"]
    for tensor in kv:
        tensor[1:].fill_(7)
    run_all(work, busy=True)
    assert all(bool((tensor[1:] == 7).all()) for tensor in kv)
    answered = {b for b, image in stored_images(first).items() if image.answer}
    assert set(stored_images(first)) == {(D, 1), (P, 32), (D, 4), (P, 8)}
    assert answered == {(D, 1), (P, 32)}
    run_all(work)
    assert all(image.answer for image in stored_images(first).values())
    assert restored(start(**mixed)).eager == []


def test_contexts_written_eagerly_are_replaced_once_a_graph_can_write_them(
    start: Callable[..., Start],
) -> None:
    mixed = {"buckets": buckets(eager=[(D, 1), (D, 4)], lazy=[(P, 32)])}
    published(start(**mixed))
    assert restored(start(**mixed)).eager == []


def test_a_lazily_captured_graph_that_fails_its_full_check_is_used_no_longer(
    start: Callable[..., Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token alone does not show everything that can be wrong."""
    first = start(buckets=buckets(eager=[(P, 32)], lazy=[(D, 4)]))
    work = first.work(first.run())
    run_all(work, busy=True)
    assert first.states()[(D, 4)] is BucketState.CAPTURED
    graph = first.graphs[(D, 4)].graph
    assert graph is not None

    class RowsMixedUp:
        bytes = 0

        def replay(self) -> None:
            graph.replay()
            logits = first.backend.logits(4)
            logits[:] = logits[::-1].copy()

    first.graphs[(D, 4)].graph = RowsMixedUp()
    run_all(work)
    assert first.states()[(D, 4)] is BucketState.FALLBACK
    assert "logits differ" in first.graphs[(D, 4)].bucket.reason


def test_a_graph_that_cannot_be_compared_goes_on_serving_and_is_not_asked_again_and_again(
    start: Callable[..., Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(buckets=buckets(eager=[(P, 32)], lazy=[(D, 4)]))
    work = first.work(first.run())
    run_all(work, busy=True)
    asked = []

    def no_compiler(shape: StepShape) -> None:
        asked.append(shape)
        raise CaptureError("its kernels could not be compiled: No space left on device")

    monkeypatch.setattr(first.backend, "run_eagerly", no_compiler)
    run_all(work)
    assert len(asked) == 1
    assert first.states()[(D, 4)] is BucketState.CAPTURED
    assert stored_images(first)[(D, 4)].answer is None


def test_what_does_not_play_from_its_stored_form_is_not_stored(
    start: Callable[..., Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    left = first.run()
    load = first.backend.player.load
    monkeypatch.setattr(
        first.backend.player, "load", lambda i: Silent() if i.size == 2 else load(i)
    )
    run_all(first.work(left))
    assert set(stored_images(first)) == set(first.graphs.ids()) - {(D, 2)}
    assert first.states()[(D, 2)] is BucketState.CAPTURED  # it is right, and goes on serving
    assert "not stored: decode 2: its stored form gives other logits" in first.report.cache.message


def test_the_proof_leaves_running_sequences_alone(start: Callable[..., Start]) -> None:
    first = start()
    work = first.work(first.run())
    kv = [first.backend.arena.tensor(r.name) for r in first.backend.layout if r.group == "kv"]
    for tensor in kv:
        tensor[1:].fill_(7)
    run_all(work, busy=True)
    assert first.report.cache.published
    assert all(bool((tensor[1:] == 7).all()) for tensor in kv)


def test_nothing_is_stored_before_it_is_proven(start: Callable[..., Start]) -> None:
    first = start()
    first.run()
    first.publishing.publish()
    assert stored_images(first) == {}
    assert not first.report.cache.published
