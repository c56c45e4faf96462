"""Whole starts on an interpreted GPU over an entry that somebody changed.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.engine.checkpoints import decode
from tests.engine.cuda import tiny
from tests.engine.cuda.tampering import (
    DAMAGE,
    EDITS,
    KERNEL_EDITS,
    STORED_GRAPH,
    Edit,
    House,
    answers,
    check_damage_anywhere_is_found,
    check_refused_everywhere,
    edit_graph,
)
from tests.engine.cuda.working import WorkingGpu
from tests.engine.store.engines import Engine, logits_of
from warmgraph_api.report import Bucket, BucketMode, BucketState, CacheResult, StepKind
from warmgraph_api.resource import Device, Execution, OnCaptureFailure
from warmgraph_engine import startup
from warmgraph_engine.shapes import BucketId
from warmgraph_engine.step import Path as StepPath

# Interpreted, a start takes seconds, and ten times that on a busy machine.
pytestmark = pytest.mark.timeout(550)

D, P = StepKind.DECODE, StepKind.PREFILL


def buckets(*declared: BucketId) -> tuple[Bucket, ...]:
    return tuple(Bucket(kind=kind, size=size, mode=BucketMode.EAGER) for kind, size in declared)


BUCKETS = buckets((D, 2), (P, 8))


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[WorkingGpu]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        gpu = WorkingGpu()
        gpu.install(monkeypatch)
        monkeypatch.setattr(startup, "_load_text", lambda *_, **__: None)
        yield gpu
        gc.collect()  # graphs, while their GPU is there


def start(model: Path, cache: Path, **settings: Any) -> Engine:
    sizes = {"max_batch_size": 2, "max_batch_tokens": 8, "max_model_length": 32}
    return Engine(model, cache, device=Device.CUDA, **{"buckets": BUCKETS, **sizes, **settings})


@pytest.fixture(scope="module")
def original(gpu: WorkingGpu, tmp_path_factory: pytest.TempPathFactory) -> House:
    folder = tmp_path_factory.mktemp("house")
    model = tiny.write(folder / "model").folder
    return House.built(partial(start, model), folder / "cache")


@pytest.fixture
def house(original: House, tmp_path: Path) -> House:
    return original.copied(tmp_path / "cache")


def test_an_entry_that_nobody_touched_is_restored(house: House) -> None:
    engine = house.start()
    assert engine.report.cache.result is CacheResult.HIT
    assert engine.report.check.message == "2 by stored answer, 0 in full"
    assert answers(engine) == house.answers
    engine.close()


def test_damage_anywhere_in_any_file_is_found(house: House) -> None:
    check_damage_anywhere_is_found(house.entry)


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_a_damaged_entry_costs_no_answer(
    house: House, damage: Callable[[Path], None], message: str
) -> None:
    damage(house.entry)
    house.refuses(message).close()


@pytest.mark.parametrize(("edit", "message"), EDITS)
def test_a_graph_that_was_changed_with_its_checksums_costs_no_answer(
    house: House, edit: Edit, message: str
) -> None:
    edit_graph(house.entry, edit)
    house.refuses(f"{STORED_GRAPH} {message}").close()


@pytest.mark.parametrize(("edit", "message"), KERNEL_EDITS)
def test_nothing_of_refused_graphs_is_used_for_others(
    house: House, edit: Edit, message: str
) -> None:
    check_refused_everywhere(house, edit, message)


@pytest.mark.parametrize("stored", [((D, 2),), ((D, 2), (P, 8))], ids=["decode", "both kinds"])
def test_graphs_captured_with_the_kernels_of_a_refused_entry_are_captured_again(
    original: House, tmp_path: Path, stored: tuple[BucketId, ...]
) -> None:
    edit, _ = next(each for each in KERNEL_EDITS if each.id == "code of two projections").values
    house = House.built(partial(original.begin, buckets=buckets(*stored)), tmp_path / "cache")
    for kind, size in stored:
        edit_graph(house.entry, edit, f"{kind}-{size}")
    more = {"buckets": buckets((D, 1), *stored), "on_capture_failure": OnCaptureFailure.FAIL}
    engine = original.begin(house.cache, **more)
    assert engine.report.cache.result is CacheResult.REFUSED
    assert set(engine.states().values()) == {BucketState.CAPTURED}
    step = decode((6, 0, [1]))
    replayed = engine.executor.execute(step)
    assert (replayed.path, replayed.bucket) == (StepPath.EXACT, 1)
    logits = logits_of(step, replayed)
    engine.executor.set_execution(Execution.EAGER)
    assert logits_of(step, engine.executor.execute(step)) == logits
    engine.close()


def test_what_was_refused_is_stored_anew_and_restored(house: House) -> None:
    edit, message = EDITS[0].values
    edit_graph(house.entry, edit)
    engine = house.refuses(message)
    engine.publish()
    engine.close()
    again = house.start()
    assert again.report.cache.result is CacheResult.HIT
    assert set(again.states().values()) == {BucketState.RESTORED}
    assert answers(again) == house.answers
    again.close()
