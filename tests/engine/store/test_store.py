"""The graph cache: a process finds what an earlier one left, and says why when it does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from tests.engine.store.entries import KEY, image, key, plain, store
from warmgraph_api.report import CacheResult, StepKind
from warmgraph_api.resource import CacheMode
from warmgraph_engine.store.layout import Plan, PlannedBucket

PLAN = Plan(buckets=[PlannedBucket(kind=StepKind.DECODE, size=1, milliseconds=12.5, hits=7)])


def test_what_one_process_published_another_finds(tmp_path: Path) -> None:
    root = tmp_path / "made" / "on demand"
    assert store(root).publish([image(1), image(2)], PLAN) == ""
    found = store(root).look_up()
    assert found.result is CacheResult.HIT
    assert plain(found.images) == plain([image(1), image(2)])
    assert found.plan == PLAN


def test_later_captures_join_the_entry(tmp_path: Path) -> None:
    first = store(tmp_path)
    first.publish([image(1), image(2)], Plan())
    first.publish([image(2, b"recorded anew"), image(4)], PLAN)
    found = store(tmp_path).look_up()
    assert plain(found.images) == plain([image(1), image(2, b"recorded anew"), image(4)])
    assert len(list((tmp_path / KEY.digest() / "images").iterdir())) == 3


def test_a_new_answer_replaces_the_old_one_beside_the_same_image(tmp_path: Path) -> None:
    old = image(1)
    store(tmp_path).publish([old, image(2)], Plan())
    assert old.answer is not None
    new = dataclasses.replace(old, answer=msgspec.structs.replace(old.answer, digest="f" * 64))
    store(tmp_path).publish([new], Plan())
    assert plain(store(tmp_path).look_up().images) == plain([new, image(2)])


def test_an_empty_cache_is_a_miss(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "not there"):
        found = store(root).look_up()
        assert (found.result, found.message) == (CacheResult.MISS, "the cache has no entry yet")


@pytest.mark.parametrize("name", KEY.__struct_fields__)
def test_each_field_of_the_key_alone_makes_a_miss_that_names_it(tmp_path: Path, name: str) -> None:
    value = getattr(KEY, name)
    other = key(**{name: value + 1 if isinstance(value, int) else f"{value} changed"})
    store(tmp_path, other).publish([image(1)], Plan())
    found = store(tmp_path).look_up()
    assert (found.result, found.field) == (CacheResult.MISS, name)
    assert name in found.message


def test_a_miss_is_explained_by_the_nearest_entry(tmp_path: Path) -> None:
    store(tmp_path, key(torch="2.10.0", dtype="bfloat16")).publish([image(1)], Plan())
    store(tmp_path, key(model_weights_digest="b" * 64)).publish([image(1)], Plan())
    found = store(tmp_path).look_up()
    assert found.field == "model_weights_digest"
    assert found.message == (
        "model_weights_digest is aaaaaaaaaaaa, stored graphs have bbbbbbbbbbbb"
    )


def test_an_entry_without_graphs_is_a_miss_that_keeps_its_advice(tmp_path: Path) -> None:
    """An engine that ran eagerly leaves what traffic wanted, and nothing to restore."""
    store(tmp_path).publish([], PLAN)
    found = store(tmp_path).look_up()
    assert (found.result, found.message) == (CacheResult.MISS, "the entry has no graph yet")
    assert found.plan == PLAN


def test_on_a_miss_the_nearest_entry_says_what_traffic_wanted(tmp_path: Path) -> None:
    """A new version of a model meets the traffic of the old one."""
    old = store(tmp_path, key(model_weights_digest="b" * 64, model_revision="v1"))
    old.publish([image(1)], PLAN)
    new = store(tmp_path, key(model_revision="v2"))
    found = new.look_up()
    assert found.plan.hits() == {(StepKind.DECODE, 1): 7}
    assert found.plan.buckets[0].milliseconds == 0, "what graphs cost belongs to the old model"
    new.publish([image(1)], Plan(buckets=[PlannedBucket(kind=StepKind.DECODE, size=1, hits=1)]))
    assert store(tmp_path, key(model_revision="v2")).look_up().plan.hits() == {
        (StepKind.DECODE, 1): 8
    }


def test_hits_of_engines_that_serve_together_add_up(tmp_path: Path) -> None:
    engines = [store(tmp_path) for _ in range(3)]
    for engine in engines:
        engine.look_up()
    for engine in engines:
        assert engine.publish([image(1)], PLAN) == ""
    assert store(tmp_path).look_up().plan.hits() == {(StepKind.DECODE, 1): 21}


def test_a_disabled_cache_neither_reads_nor_writes(tmp_path: Path) -> None:
    store(tmp_path).publish([image(1)], Plan())
    off = store(tmp_path, mode=CacheMode.DISABLED)
    assert off.look_up().result is CacheResult.DISABLED
    assert "Disabled" in off.publish([image(2)], Plan())
    assert store(None).look_up().result is CacheResult.DISABLED


def test_a_read_only_cache_is_read(tmp_path: Path) -> None:
    store(tmp_path).publish([image(1)], Plan())
    reader = store(tmp_path, mode=CacheMode.READ_ONLY)
    assert reader.look_up().result is CacheResult.HIT
    assert "ReadOnly" in reader.publish([image(2)], Plan())
    assert plain(store(tmp_path).look_up().images) == plain([image(1)])


def test_an_unreadable_plan_costs_only_its_advice(tmp_path: Path) -> None:
    store(tmp_path).publish([image(1)], PLAN)
    (tmp_path / KEY.digest() / "plan.json").write_text("{")
    found = store(tmp_path).look_up()
    assert found.result is CacheResult.HIT
    assert found.plan == Plan()


def test_the_key_can_be_read_by_people(tmp_path: Path) -> None:
    store(tmp_path).publish([image(1)], Plan())
    text = (tmp_path / KEY.digest() / "key.json").read_text()
    assert '"model_weights_digest": "aaaa' in text
    assert msgspec.json.decode(text) == msgspec.to_builtins(KEY)
