"""The graph cache: a process finds what an earlier one left, and says why when it does not."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import threading
from pathlib import Path

import msgspec
import pytest

from tests.engine.store.entries import KEY, image, key, plain, store
from warmgraph_api.report import CacheResult, StepKind
from warmgraph_api.resource import CacheMode
from warmgraph_engine.store import locks, maintenance
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


def test_pruning_keeps_the_newest_and_what_is_in_use(tmp_path: Path) -> None:
    keys = [key(max_batch_size=n) for n in (1, 2, 3, 4)]
    stores = [store(tmp_path, k) for k in keys]
    for age, (k, s) in enumerate(zip(keys, stores, strict=True)):
        assert s.publish([image(1)], Plan()) == ""
        os.utime(tmp_path / k.digest() / "manifest.json", (1000 + age, 1000 + age))
        s.close()
    user = stores[0]
    assert user.look_up().result is CacheResult.HIT
    with locks.writing(tmp_path):
        removed = maintenance.prune(tmp_path, keep=1)
    assert {path.name for path in removed} == {keys[1].digest(), keys[2].digest()}
    assert {p.path.name for p in maintenance.summaries(tmp_path)} == {
        keys[0].digest(),
        keys[3].digest(),
    }
    user.close()
    with locks.writing(tmp_path):
        maintenance.prune(tmp_path, keep=0)
    assert list(maintenance.summaries(tmp_path)) == []
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_publishing_prunes_by_retention(tmp_path: Path) -> None:
    for n in range(1, 5):
        s = store(tmp_path, key(max_batch_size=n), keep_entries=1)
        s.publish([image(1)], Plan())
        s.close()
    assert len(list(maintenance.summaries(tmp_path))) == 2  # its own, in use, and one more


def _publish(root: Path, number: int) -> None:
    assert store(root).publish([image(number, b"from %d" % number)], Plan()) == ""


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_publish, args=(tmp_path, n)) for n in range(1, 7)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 6
    found = store(tmp_path).look_up()
    assert plain(found.images) == plain(image(n, b"from %d" % n) for n in range(1, 7))


def test_a_writer_that_holds_the_lock_for_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.1)
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.writing(tmp_path):
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        assert "another process has been writing" in store(tmp_path).publish([image(1)], Plan())
    finally:
        release.set()
        holder.join()


def test_the_key_can_be_read_by_people(tmp_path: Path) -> None:
    store(tmp_path).publish([image(1)], Plan())
    text = (tmp_path / KEY.digest() / "key.json").read_text()
    assert '"model_weights_digest": "aaaa' in text
    assert msgspec.json.decode(text) == msgspec.to_builtins(KEY)
