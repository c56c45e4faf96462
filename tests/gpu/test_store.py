"""Stored graphs on a GPU: the bits of those that were captured, and none for another model, kernel
or driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cuda.bindings import driver as cuda

from tests.engine.cuda.tampering import (
    DAMAGE,
    EDITS,
    KERNEL_EDITS,
    STORED_GRAPH,
    Edit,
    House,
    check_damage_anywhere_is_found,
    check_refused_everywhere,
    edit_graph,
)
from tests.engine.store import processes, random_steps
from tests.engine.store.engines import Engine, config_of
from tests.gpu.conftest import write_servable
from warmgraph_api.report import BucketState, CacheResult, CheckState
from warmgraph_api.resource import CacheMode, Device, DType, Quantization
from warmgraph_engine.backends.cuda import facts
from warmgraph_engine.backends.cuda.driver import Device as Gpu
from warmgraph_engine.backends.cuda.driver import check
from warmgraph_engine.backends.open import backend_settings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.store import key as key_module
from warmgraph_engine.store.key import cache_key, sources_digest
from warmgraph_engine.store.policy import Retention
from warmgraph_engine.store.store import Lookup, Store

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

STEPS = 1_000
SEED = 11
SETTINGS: dict[str, Any] = {"device": Device.CUDA, "kv_cache_bytes": 1 << 20}


class Stored(NamedTuple):
    """A cache that an engine has filled, and that engine's answers."""

    cache: Path
    answers: bytes
    arena: range
    """Where that engine's memory was: addresses."""


def arena(engine: Engine) -> range:
    backend = engine.executor._backend
    first = next(iter(backend.layout))
    base = backend._addresses[first.name] - first.offset
    return range(base, base + backend.layout.bytes)


@pytest.fixture(scope="module")
def stored(servable: Path, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    cache = tmp_path_factory.mktemp("cache")
    engine = Engine(servable, cache, **SETTINGS)
    assert set(engine.states().values()) == {BucketState.CAPTURED}
    engine.publish()
    answers = engine.answers()
    engine.close()
    return Stored(cache, answers, arena(engine))


@pytest.fixture
def cache(stored: Stored, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored.cache, tmp_path / "cache"))


def test_a_thousand_random_steps_are_equal_bit_for_bit_in_the_process_that_restored(
    servable: Path, tmp_path: Path
) -> None:
    """Which restores a graph a hundred times more, in the midst of them."""
    engine = random_steps.start(servable, tmp_path / "cache", Device.CUDA)
    assert set(engine.states().values()) == {BucketState.CAPTURED}
    engine.publish()
    captured = random_steps.answers(engine, SEED, STEPS)
    engine.close()
    restoring = processes.run_module(
        "tests.engine.store.random_steps", servable, tmp_path / "cache", SEED, STEPS, Device.CUDA
    )
    output, _ = restoring.communicate()
    random_steps.check_restored(captured, output)


@pytest.fixture
def taken(stored: Stored) -> Iterator[None]:
    """As much memory as the engine's arena had, and where it was if that has been given back: the
    next engine gets another place."""
    address = Gpu().allocate(len(stored.arena))
    yield
    check(cuda.cuMemFree(address))


@pytest.mark.usefixtures("taken")
def test_graphs_that_are_restored_at_another_address_give_the_same_bits(
    servable: Path, stored: Stored, cache: Path
) -> None:
    engine = Engine(servable, cache, **SETTINGS)
    assert set(engine.states().values()) == {BucketState.RESTORED}
    assert engine.report.check.message == "4 by stored answer, 0 in full"
    assert arena(engine).start != stored.arena.start
    assert engine.answers() == stored.answers


def test_other_weights_under_the_same_key_are_noticed_by_their_answers(
    servable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graphs are compared with eager execution, and answer for the weights that are loaded."""
    monkeypatch.setattr(Checkpoint, "digest", "0" * 64)
    first = Engine(servable, tmp_path / "cache", **SETTINGS)
    first.publish()
    first.close()
    other = write_servable(tmp_path / "other", seed=1)
    second = Engine(other, tmp_path / "cache", **SETTINGS)
    assert second.report.cache.result is CacheResult.HIT
    assert second.report.check.state is CheckState.PASSED
    assert "4 gave another answer than the stored one" in second.report.check.message
    assert second.answers() == Engine(other, None, **SETTINGS).answers()
    assert second.answers() != first.answers()


def edited_kernel(folder: Path) -> str:
    """The digest of the engine's sources with another attention kernel."""
    package = Path(key_module.__file__).parents[1]
    shutil.copytree(package, folder, ignore=shutil.ignore_patterns("*.pyc"))
    with (folder / "backends/cuda/kernels/attention.py").open("a") as file:
        file.write("\n# another kernel\n")
    return sources_digest(Device.CUDA, folder)


def look_up(model: Path, cache: Path, **settings: Any) -> Lookup:
    """What an engine with these settings finds on this machine."""
    config = config_of(model, cache, **{**SETTINGS, **settings})
    checkpoint = Checkpoint(model)
    key = cache_key(config, checkpoint, backend_settings(config, checkpoint), facts.device_facts())
    return Store(cache, key, mode=CacheMode.READ_ONLY, retention=Retention()).look_up()


def test_an_equal_key_finds_the_graphs(servable: Path, cache: Path) -> None:
    found = look_up(servable, cache)
    assert found.result is CacheResult.HIT
    assert len(found.images) == 4


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"quantization": Quantization.FP8}, "quantization"),
        ({"dtype": DType.FLOAT16}, "dtype"),
        ({"model_revision": "v2"}, "model_revision"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size"),
    ],
)
def test_no_graph_is_found_for_another_setting(
    servable: Path, cache: Path, settings: dict[str, Any], field: str
) -> None:
    found = look_up(servable, cache, **settings)
    assert (found.result, found.field, found.images) == (CacheResult.MISS, field, ())


@pytest.mark.parametrize(
    ("place", "name", "value", "field"),
    [
        (facts, "_driver_version", lambda: "999.1", "driver"),
        (facts, "version", lambda _: "9.9", "torch"),
        (key_module, "version", lambda _: "9.9", "engine_version"),
    ],
)
def test_no_graph_is_found_by_another_engine_compiler_or_driver(
    servable: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    value: Callable[..., str],
    field: str,
) -> None:
    monkeypatch.setattr(place, name, value)
    found = look_up(servable, cache)
    assert (found.result, found.field, found.images) == (CacheResult.MISS, field, ())


def test_no_graph_is_found_for_another_model(cache: Path, tmp_path: Path) -> None:
    found = look_up(write_servable(tmp_path / "other", seed=1), cache)
    assert (found.result, found.field) == (CacheResult.MISS, "model_weights_digest")


def test_an_engine_with_another_kernel_captures_its_own_graphs(
    servable: Path,
    stored: Stored,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digest = edited_kernel(tmp_path / "engine")
    monkeypatch.setattr(key_module, "sources_digest", lambda _: digest)
    engine = Engine(servable, cache, **SETTINGS)
    assert engine.report.cache.result is CacheResult.MISS
    assert engine.report.cache.field == "engine_sources_digest"
    assert set(engine.states().values()) == {BucketState.CAPTURED}
    assert engine.answers() == stored.answers


@pytest.fixture(scope="module")
def original(servable: Path, tmp_path_factory: pytest.TempPathFactory) -> House:
    def begin(cache: Path) -> Engine:
        return Engine(servable, cache, **SETTINGS)

    return House.built(begin, tmp_path_factory.mktemp("house") / "cache")


@pytest.fixture
def house(original: House, tmp_path: Path) -> House:
    return original.copied(tmp_path / "cache")


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
