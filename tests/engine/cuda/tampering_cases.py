"""Whole starts on an interpreted GPU over an entry that somebody changed.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

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
from tests.engine.store.engines import Engine
from warmgraph_api.report import Bucket, BucketMode, BucketState, CacheResult, StepKind
from warmgraph_api.resource import Device
from warmgraph_engine import startup

# Interpreted, a start takes seconds, and ten times that on a busy machine.
pytestmark = pytest.mark.timeout(550)

BUCKETS = tuple(
    Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
    for kind, size in ((StepKind.DECODE, 2), (StepKind.PREFILL, 8))
)


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[WorkingGpu]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        gpu = WorkingGpu()
        gpu.install(monkeypatch)
        monkeypatch.setattr(startup, "_load_text", lambda *_, **__: None)
        yield gpu
        gc.collect()  # graphs, while their GPU is there


def start(model: Path, cache: Path) -> Engine:
    return Engine(
        model,
        cache,
        device=Device.CUDA,
        buckets=BUCKETS,
        max_batch_size=2,
        max_batch_tokens=8,
        max_model_length=32,
    )


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
