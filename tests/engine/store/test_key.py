"""What is in an engine's cache key, and what must never be."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import grimp
import pytest

from tests.engine.checkpoints import write_checkpoint
from tests.engine.store import processes
from tests.engine.store.entries import image, store
from warmgraph_api.cachekey import CacheKey
from warmgraph_api.report import Bucket, BucketMode, CacheResult, StepKind
from warmgraph_api.resource import (
    CacheMode,
    Device,
    DType,
    Execution,
    OnCaptureFailure,
    Quantization,
    WarmupOrder,
    WarmupPolicy,
)
from warmgraph_engine.backends.cpu.backend import device_facts
from warmgraph_engine.backends.cuda import facts as cuda_facts
from warmgraph_engine.backends.open import backend_settings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.graph_mode import GraphMode
from warmgraph_engine.store import key as key_module
from warmgraph_engine.store.key import cache_key, sources_digest
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.policy import Retention, User

BUCKET = Bucket(kind=StepKind.DECODE, size=1, mode=BucketMode.EAGER)

DECIDES: dict[str, tuple[Any, str]] = {
    "model_revision": ("v2", "model_revision"),
    "device": (Device.CUDA, "device"),
    "dtype": (DType.BFLOAT16, "dtype"),
    "quantization": (Quantization.FP8, "quantization"),
    "attention_backend": ("other", "attention_backend"),
    "tensor_parallel_size": (2, "tensor_parallel_size"),
    "max_model_length": (128, "max_model_length"),
    "max_batch_size": (4, "max_batch_size"),
    "max_batch_tokens": (64, "max_batch_tokens"),
    "kv_block_size": (8, "kv_layout"),
    "kv_cache_bytes": (1 << 20, "kv_layout"),
    "speculative_tokens": (3, "speculative_tokens"),
}
"""Settings that a graph depends on: another value, and the field that says so."""

INDIFFERENT: dict[str, Any] = {
    "graph_mode": GraphMode.PIECEWISE,
    "served_model_name": "other",
    "host": "127.0.0.1",
    "port": 9,
    "rank_timeout_seconds": 5.0,
    "execution": Execution.EAGER,
    "buckets": (BUCKET,),
    "warmup_policy": WarmupPolicy.MODEL_LOADED,
    "warmup_order": WarmupOrder.LEARNED,
    "on_capture_failure": OnCaptureFailure.FAIL,
    "lazy_capture": False,
    "lazy_capture_busy_percent": 99,
    "known_answer_check": False,
    "cache_directory": Path("/elsewhere"),
    "cache_mode": CacheMode.READ_ONLY,
    "cache_retention": Retention(revisions=0),
    "cache_user": User("space.name", "r1"),
    "report_socket": Path("/run/s"),
}
"""Settings of the pod, and of when something is captured."""

FACTS = {
    "device_name": "AVX2",
    "device_architecture": "x86_64",
    "driver": "none",
    "cuda": "none",
    "torch": "2.11.0",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"))


def key_of(model: Path, **settings: Any) -> CacheKey:
    base: dict[str, Any] = {
        "served_model_name": "m",
        "max_model_length": 64,
        "max_batch_size": 8,
        "max_batch_tokens": 32,
        "kv_cache_bytes": 64 << 10,
    }
    config = EngineConfig(model=model, **{**base, **settings})
    checkpoint = Checkpoint(model)
    return cache_key(config, checkpoint, backend_settings(config, checkpoint), FACTS)


def test_every_setting_of_the_engine_is_decided_on() -> None:
    """A new one has to be put into the key, or into the list of those that graphs ignore."""
    settings = {field.name for field in dataclasses.fields(EngineConfig)}
    assert settings == {"model", *DECIDES, *INDIFFERENT}


@pytest.mark.parametrize("setting", DECIDES)
def test_a_setting_that_graphs_depend_on_is_named_by_its_field(
    model: Path, tmp_path: Path, setting: str
) -> None:
    value, field = DECIDES[setting]
    store(tmp_path, key_of(model)).publish([image(1)], Plan())
    found = store(tmp_path, key_of(model, **{setting: value})).look_up()
    assert found.result is CacheResult.MISS
    assert f"{field} is " in found.message
    if setting != "device":  # another device has other sources too, and another dtype
        assert found.field == field


@pytest.mark.parametrize("setting", INDIFFERENT)
def test_a_setting_that_graphs_ignore_finds_the_same_entry(model: Path, setting: str) -> None:
    assert key_of(model, **{setting: INDIFFERENT[setting]}) == key_of(model)


def test_a_draft_of_another_length_is_another_key(model: Path) -> None:
    keys = {key_of(model, speculative_tokens=k).digest() for k in (0, 1, 4)}
    assert len(keys) == 3


def test_each_rank_has_a_key_of_its_own(model: Path) -> None:
    config = EngineConfig(model=model, served_model_name="m", tensor_parallel_size=2)
    checkpoint = Checkpoint(model)
    first, second = (
        cache_key(config, checkpoint, backend_settings(config, checkpoint, rank=rank), FACTS)
        for rank in (0, 1)
    )
    assert first.differences(second) == {"tensor_parallel_rank": (0, 1)}


# --- the model --------------------------------------------------------------------------------


def _copy(model: Path, folder: Path) -> Path:
    return Path(shutil.copytree(model, folder, copy_function=shutil.copyfile))


def test_the_same_model_elsewhere_is_the_same(model: Path, tmp_path: Path) -> None:
    """Another path, other times of its files, another tokenizer: none is part of a step."""
    copy = _copy(model, tmp_path / "elsewhere")
    (copy / "tokenizer.json").write_text("{}")
    assert key_of(copy) == key_of(model)


def test_another_number_in_its_config_is_another_model(model: Path, tmp_path: Path) -> None:
    copy = _copy(model, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-6}))
    assert list(key_of(copy).differences(key_of(model))) == ["model_config_digest"]


def test_other_weights_are_another_model(model: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other", seed=1)
    assert list(key_of(other).differences(key_of(model))) == ["model_weights_digest"]


# --- the engine's sources ---------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    source = Path(key_module.__file__).parents[1]
    return Path(
        shutil.copytree(source, tmp_path / "engine", ignore=shutil.ignore_patterns("*.pyc"))
    )


@pytest.mark.parametrize(
    ("device", "source"),
    [
        ("cpu", "backends/cpu/kernels.py"),
        ("cpu", "models/llama.py"),
        ("cpu", "buffers.py"),
        ("cuda", "backends/cuda/kernels/attention.py"),
        ("cuda", "backends/cuda/tiling.py"),
        ("cuda", "backends/settings.py"),
    ],
)
def test_an_edited_kernel_is_another_engine(package: Path, device: str, source: str) -> None:
    before = sources_digest(device, package)
    with (package / source).open("a") as file:
        file.write("\n# edited\n")
    assert sources_digest(device, package) != before


@pytest.mark.parametrize("source", ["server/app.py", "loop.py", "store/store.py", "main.py"])
def test_what_only_serves_is_not_part_of_a_graph(package: Path, source: str) -> None:
    before = sources_digest("cpu", package)
    with (package / source).open("a") as file:
        file.write("\n# edited\n")
    assert sources_digest("cpu", package) == before


def test_a_kernel_of_the_other_device_is_not_part_of_ours(package: Path) -> None:
    before = sources_digest("cpu", package)
    (package / "backends/cuda/tiling.py").write_text("")
    assert sources_digest("cpu", package) == before


HOLDS_NO_GRAPH = {
    "warmgraph_engine.graph_mode",  # how the same images are played
    "warmgraph_engine.answer",  # what a graph answered, not what it is
    "warmgraph_engine.backends.peers",  # how ranks find each other
    "warmgraph_engine.checkpoint",  # reads weights, of which the key has a digest
    "warmgraph_engine.sampling",  # what steps are asked to draw, not how (kernels/draw.py)
    "warmgraph_engine.step",  # types; buffers.py says what they mean to a graph
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_source_that_a_recorder_or_player_uses_is_covered(package: Path, device: str) -> None:
    """A module that decides what a graph is, and is not in the digest, would let an old graph run
    in a new engine."""
    imports = grimp.build_graph("warmgraph_engine")
    used: set[str] = set()
    for name in ("recorder", "player", "backend"):
        module = f"warmgraph_engine.backends.{device}.{name}"
        used |= {module, *imports.find_upstream_modules(module)}
    before = sources_digest(device, package)
    uncovered = set()
    for module in used:
        path = package.joinpath(*module.split(".")[1:]).with_suffix(".py")
        if not path.exists():
            continue  # a package
        text = path.read_text()
        path.write_text(text + "\n# edited\n")
        if sources_digest(device, package) == before:
            uncovered.add(module)
        path.write_text(text)
    unexplained = {
        module
        for module in uncovered
        if not any(module == each or module.startswith(f"{each}.") for each in HOLDS_NO_GRAPH)
    }
    assert unexplained == set()
    assert len(used) > 15


# --- what must never be in it -----------------------------------------------------------------

PRINT_KEY = """
import sys
from pathlib import Path
from tests.engine.store.test_key import device_facts, key_of
print(key_of(Path(sys.argv[1])).digest(), sorted(device_facts().items()))
"""


@pytest.mark.parametrize(
    "around",
    [
        {"HOSTNAME": "pod-a-1", "POD_NAME": "pod-a-1", "TZ": "Asia/Seoul"},
        {"HOSTNAME": "pod-b-2", "POD_IP": "10.0.0.2", "CUDA_VISIBLE_DEVICES": "GPU-1234"},
    ],
)
def test_another_pod_at_another_time_finds_the_same_entry(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, around: dict[str, str]
) -> None:
    """Another process, environment, host name, folder and clock."""
    for name, value in around.items():
        monkeypatch.setenv(name, value)
    copy = _copy(model, tmp_path / around["HOSTNAME"])
    output, _ = processes.run(PRINT_KEY, copy).communicate()
    assert output.split(maxsplit=1) == [
        key_of(model).digest(),
        f"{sorted(device_facts().items())}\n",
    ]


class Gpu:
    """Only what may be in a key. Asked for a UUID or its place on the bus, it fails the test."""

    name = "NVIDIA H200"
    capability = 90
    cuda_version = 13000

    def __init__(self, ordinal: int) -> None:
        assert ordinal == 0


def test_the_facts_of_a_gpu_are_those_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_facts, "Device", Gpu)
    monkeypatch.setattr(cuda_facts, "_driver_version", lambda: "580.159.04")
    facts = cuda_facts.device_facts()
    assert facts.pop("torch").startswith("none; triton 3.")
    assert facts == {
        "device_name": "NVIDIA H200",
        "device_architecture": "sm_90",
        "driver": "580.159.04",
        "cuda": "13.0",
    }


@pytest.mark.parametrize(
    ("attribute", "value", "field"),
    [
        ("name", "NVIDIA H100", "device_name"),
        ("capability", 100, "device_architecture"),
        ("cuda_version", 12080, "cuda"),
    ],
)
def test_another_gpu_or_driver_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, attribute: str, value: Any, field: str
) -> None:
    def facts() -> dict[str, str]:
        monkeypatch.setattr(cuda_facts, "Device", Gpu)
        monkeypatch.setattr(cuda_facts, "_driver_version", lambda: "580.1")
        return cuda_facts.device_facts()

    ours = facts()
    monkeypatch.setattr(Gpu, attribute, value)
    theirs = facts()
    assert [name for name in ours if ours[name] != theirs[name]] == [field]


def test_no_field_is_named_after_a_pod_or_a_device() -> None:
    forbidden = ("pod", "node", "host", "uuid", "serial", "port", "time", "user", "path")
    assert [f for f in CacheKey.__struct_fields__ if any(word in f for word in forbidden)] == []
