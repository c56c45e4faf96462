"""A restored graph that gives its stored answer serves at once; any other is checked in full."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.engine.checkpoints import write_checkpoint, write_gpt2_checkpoint
from tests.engine.warmup.starts import (
    BY_ANSWER,
    EVERY_KIND,
    D,
    P,
    Start,
    V,
    buckets,
    in_full,
    published,
    restored,
    stored_images,
)
from warmgraph_api.report import BucketState, CheckState, StepKind
from warmgraph_engine.answer import digest_of
from warmgraph_engine.backends.base import Graph, GraphImage
from warmgraph_engine.counts import CheckReason
from warmgraph_engine.store.layout import Plan


@pytest.mark.parametrize("write", [write_checkpoint, write_gpt2_checkpoint])
def test_a_restored_start_runs_nothing_eagerly(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    model = write(tmp_path / "any model")
    first = published(Start(model, tmp_path / "cache", **EVERY_KIND))
    assert len(first.eager) >= len(first.graphs.ids())
    second = restored(Start(model, tmp_path / "cache", **EVERY_KIND))
    assert (second.eager, second.captured) == ([], [])
    assert set(second.checks().values()) == {BY_ANSWER}
    assert set(second.states().values()) == {BucketState.RESTORED}
    assert second.report.check.state is CheckState.PASSED
    assert second.report.check.message == "7 by stored answer, 0 in full"


def test_whatever_lies_in_the_kv_cache_before_is_no_part_of_an_answer(
    start: Callable[..., Start],
) -> None:
    published(start())
    second = start()
    for region in second.backend.layout:
        if region.group == "kv":
            second.backend.arena.tensor(region.name)[1:].fill_(float("nan"))
    restored(second)
    assert second.eager == []
    assert set(second.checks().values()) == {BY_ANSWER}


def test_contexts_that_are_lost_before_the_replay_are_no_answer(
    start: Callable[..., Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    published(start())
    second = start()
    contexts, lost = second.answers._contexts, []
    provide = contexts.provide

    def provide_and_lose_once(writer: int) -> None:
        provide(writer)
        if not lost:
            lost.append(writer)
            second.backend.poison_kv(8)

    monkeypatch.setattr(contexts, "provide", provide_and_lose_once)
    restored(second)
    assert second.checks()[(D, 1)] == in_full(CheckReason.OTHER_ANSWER)
    assert second.checks()[(D, 2)] == BY_ANSWER


def test_each_restored_graph_is_replayed_once(
    start: Callable[..., Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prefill's known-answer step has then written what decode steps continue."""
    few = {"buckets": buckets(eager=[(D, 2), (D, 8), (P, 32)], lazy=[])}
    published(start(**few))
    second, replayed = start(**few), []
    load = second.backend.player.load

    class Counted:
        bytes = 0

        def __init__(self, image: GraphImage) -> None:
            self._graph, self._bucket = load(image), (image.kind, image.size)

        def replay(self) -> None:
            replayed.append(self._bucket)
            self._graph.replay()

    monkeypatch.setattr(second.backend.player, "load", Counted)
    restored(second)
    assert replayed == [(P, 32), (D, 2), (D, 8)]


def test_small_prefill_buckets_write_the_contexts_in_several_steps(
    start: Callable[..., Start],
) -> None:
    few = {"buckets": buckets(eager=[(D, 8), (P, 4)], lazy=[])}
    published(start(**few))
    second = restored(start(**few))
    assert second.eager == []
    assert set(second.checks().values()) == {BY_ANSWER}


@pytest.mark.parametrize("prefill", [[], [(P, 2)]])
def test_without_a_prefill_bucket_that_can_only_contexts_are_run_eagerly(
    start: Callable[..., Start], prefill: list[tuple[StepKind, int]]
) -> None:
    few = {"buckets": buckets(eager=[(D, 2), (D, 8), *prefill], lazy=[])}
    published(start(**few))
    second = restored(start(**few))
    assert {shape.kind for shape in second.eager} == {P}
    assert set(second.checks().values()) == {BY_ANSWER}


def test_another_answer_is_for_eager_execution_to_judge_and_is_replaced(
    start: Callable[..., Start],
) -> None:
    first = published(start())
    image = stored_images(first)[(D, 2)]
    other = msgspec.structs.replace(image.answer, digest="0" * 64)
    first.store.publish([dataclasses.replace(image, answer=other)], Plan())

    second = restored(start())
    assert second.checks()[(D, 2)] == in_full(CheckReason.OTHER_ANSWER)
    assert second.states()[(D, 2)] is BucketState.RESTORED
    assert second.report.check.state is CheckState.PASSED
    assert second.report.check.message == (
        "6 by stored answer, 1 in full (1 gave another answer than the stored one)"
    )
    second.publishing.start()
    assert stored_images(second)[(D, 2)].answer == image.answer

    third = restored(start())
    assert third.eager == []


def _changed(image: GraphImage, old: bytes, new: bytes) -> GraphImage:
    document = image.document.replace(old, new)
    assert document != image.document
    return dataclasses.replace(image, document=document)


def _without(image: GraphImage, operation: str) -> GraphImage:
    document = json.loads(image.document)
    kept = [node for node in document["nodes"] if node["op"] != operation]
    assert kept != document["nodes"]
    return dataclasses.replace(image, document=json.dumps({**document, "nodes": kept}).encode())


@pytest.mark.parametrize("others", [[], [(P, 8), (D, 1), (D, 2), (V, 1)]])
@pytest.mark.parametrize("bucket", [(P, 32), (D, 8), (V, 4)])
@pytest.mark.parametrize("harm", ["computes otherwise", "stores no keys and values"])
def test_a_stored_graph_that_is_wrong_never_serves(
    start: Callable[..., Start],
    others: list[tuple[StepKind, int]],
    bucket: tuple[StepKind, int],
    harm: str,
) -> None:
    """Though the store vouches for it: it was harmed before its checksum was made. Whatever other
    graphs have left in the KV cache does not hide it."""
    declared = {"buckets": buckets(eager=sorted({*others, bucket, (P, 32)}), lazy=[])}
    first = published(start(**declared))
    image = stored_images(first)[bucket]
    wrong = (
        _changed(image, b'"aten.silu.default"', b'"aten.gelu.default"')
        if harm == "computes otherwise"
        else _without(image, "warmgraph.store_kv.default")
    )
    first.store.publish([wrong], Plan())
    second = start(**declared)
    second.run()
    assert second.captured == [bucket]
    assert second.graphs.replaced == 1
    states = second.states()
    assert states.pop(bucket) is BucketState.CAPTURED
    assert set(states.values()) <= {BucketState.RESTORED}


def test_a_graph_that_stores_no_keys_and_values_is_found_at_its_capture_too(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Start(model, None, **EVERY_KIND)
    load = first.backend.player.load

    def forgetful(image: GraphImage) -> Graph:
        return load(_without(image, "warmgraph.store_kv.default") if image.size == 8 else image)

    monkeypatch.setattr(first.backend.player, "load", forgetful)
    first.run()
    assert first.states()[(P, 8)] is BucketState.FALLBACK
    assert first.states()[(D, 8)] is BucketState.FALLBACK


def test_an_entry_without_answers_is_checked_in_full_and_gets_them(
    start: Callable[..., Start],
) -> None:
    first = published(start(known_answer_check=False))
    assert {image.answer for image in stored_images(first).values()} == {None}
    second = restored(start())
    assert set(second.checks().values()) == {in_full(CheckReason.NO_ANSWER)}
    assert second.report.check.message == (
        "0 by stored answer, 7 in full (7 stored without an answer)"
    )
    second.publishing.start()
    assert restored(start()).eager == []


def test_weights_that_the_sampled_digest_takes_for_the_same_are_noticed(
    start: Callable[..., Start], model: Path
) -> None:
    first = published(start())
    weights = load_file(model / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"][3, 5] += 0.5
    save_file(weights, model / "model.safetensors")
    second = restored(start())
    assert second.digest == first.digest
    assert set(second.checks().values()) == {in_full(CheckReason.OTHER_ANSWER)}
    assert set(second.states().values()) == {BucketState.RESTORED}
    second.publishing.start()
    assert restored(start()).eager == []


def test_an_answer_to_another_question_is_none(start: Callable[..., Start]) -> None:
    """Its contexts came from a bucket that this process has not."""
    published(start())
    fewer = {"buckets": buckets(eager=[(D, 8), (P, 8)], lazy=[])}
    second = restored(start(**fewer))
    assert second.checks() == {
        (P, 8): BY_ANSWER,
        (D, 8): in_full(CheckReason.OTHER_QUESTION),
    }


def test_an_answer_belongs_to_the_question_it_was_stored_with(start: Callable[..., Start]) -> None:
    first = published(start())
    images = stored_images(first)
    swapped = dataclasses.replace(images[(D, 2)], answer=images[(D, 8)].answer)
    mixed = dataclasses.replace(
        images[(V, 1)],
        answer=msgspec.structs.replace(images[(V, 1)].answer, digest=images[(V, 4)].answer.digest),
    )
    first.store.publish([swapped, mixed], Plan())
    second = restored(start())
    assert second.checks()[(D, 2)] == in_full(CheckReason.OTHER_QUESTION)
    assert second.checks()[(V, 1)] == in_full(CheckReason.OTHER_ANSWER)


def test_equal_logits_to_the_last_bit_are_the_same_answer() -> None:
    logits = np.ones((2, 3), np.float32)
    nearly = logits.copy()
    nearly[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    assert digest_of("q", logits, [1]) == digest_of("q", logits.copy(), [1])
    assert digest_of("q", logits, [1]) != digest_of("q", nearly, [1])
    assert digest_of("q", logits, [1]) != digest_of("r", logits, [1])
    assert digest_of("q", logits, [1]) != digest_of("q", logits, [2])


def test_an_answer_of_many_slabs_counts_to_its_last_bit() -> None:
    logits = np.zeros((3, 500_000), np.float32)
    found = digest_of("q", logits, [])
    assert found == digest_of("q", logits.copy(), [])
    for place in ((0, 0), (1, 262_143), (2, 499_999)):
        nearly = logits.copy()
        nearly[place] = np.nextafter(np.float32(0), np.float32(1))
        assert digest_of("q", nearly, []) != found
    assert digest_of("q", np.roll(logits + np.arange(3)[:, None], 1, axis=0), []) != digest_of(
        "q", logits + np.arange(3)[:, None], []
    ), "rows in another order"
