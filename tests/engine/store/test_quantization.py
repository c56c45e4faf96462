"""Graphs of quantized weights and of plain ones never serve each other, whoever tries."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.checkpoints import write_servable_checkpoint
from tests.engine.store.engines import Engine
from warmgraph_api.report import BucketState, CacheResult
from warmgraph_api.resource import Quantization

NONE, FP8 = Quantization.NONE, Quantization.FP8
BOTH_WAYS = pytest.mark.parametrize(("stored", "starting"), [(NONE, FP8), (FP8, NONE)])


@dataclass(frozen=True, kw_only=True)
class House:
    """A model, a cache with its entry of each quantization, and what it answers."""

    model: Path
    entries: dict[Quantization, Path]
    answers: dict[Quantization, bytes]

    def start(self, cache: Path, quantization: Quantization) -> Engine:
        return Engine(self.model, cache, quantization=quantization)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    folder = tmp_path_factory.mktemp("quantization")
    house = House(model=write_servable_checkpoint(folder / "model"), entries={}, answers={})
    for quantization in Quantization:
        cache = folder / quantization
        engine = house.start(cache, quantization)
        house.answers[quantization] = engine.answers()
        engine.publish()
        house.entries[quantization] = cache / engine.report.cache.key
        engine.close()
    assert house.answers[NONE] != house.answers[FP8]
    return house


@BOTH_WAYS
def test_another_quantization_finds_no_graph_and_says_so(
    house: House, tmp_path: Path, stored: Quantization, starting: Quantization
) -> None:
    shutil.copytree(house.entries[stored], tmp_path / house.entries[stored].name)
    engine = house.start(tmp_path, starting)
    cache = engine.report.cache
    assert cache.result is CacheResult.MISS
    assert cache.field == "quantization"
    assert cache.message == f"quantization is {starting}, stored graphs have {stored}"
    assert set(engine.states().values()) == {BucketState.CAPTURED}
    assert engine.answers() == house.answers[starting]
    engine.close()


@BOTH_WAYS
def test_an_entry_that_was_copied_to_the_other_key_is_refused_by_the_field(
    house: House, tmp_path: Path, stored: Quantization, starting: Quantization
) -> None:
    shutil.copytree(house.entries[stored], tmp_path / house.entries[starting].name)
    engine = house.start(tmp_path, starting)
    cache = engine.report.cache
    assert cache.result is CacheResult.REFUSED
    assert cache.field == "quantization"
    assert f"quantization is {starting}, stored graphs have {stored}" in cache.message
    assert set(engine.states().values()) == {BucketState.CAPTURED}
    assert engine.answers() == house.answers[starting]
    engine.close()


@pytest.mark.parametrize("quantization", Quantization)
def test_each_finds_its_own_graphs_beside_the_others(
    house: House, tmp_path: Path, quantization: Quantization
) -> None:
    for entry in house.entries.values():
        shutil.copytree(entry, tmp_path / entry.name)
    engine = house.start(tmp_path, quantization)
    assert engine.report.cache.result is CacheResult.HIT
    assert set(engine.states().values()) == {BucketState.RESTORED}
    assert engine.answers() == house.answers[quantization]
    engine.close()
