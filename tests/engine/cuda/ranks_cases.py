"""Two ranks on interpreted GPUs: what requests get, from captured and from restored graphs.

Run by test_program.py, in a process where Triton interprets; the other rank is a process too.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from safetensors.torch import save_file

from tests.engine.cuda import tiny
from tests.engine.cuda.models import checkpoint_tensors, random_weights
from tests.engine.cuda.working import WorkingGpu
from tests.engine.harness import Engine, Result
from tests.engine.parallel.fallback import fallback_logits, let_rank_fail
from tests.engine.requests import one_of_each_kind
from tests.engine.store.engines import Engine as StartedEngine
from warmgraph_api.report import Bucket, BucketMode, CacheResult, StepKind
from warmgraph_api.resource import Device
from warmgraph_engine import startup
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.models.config import ModelError, parse_config
from warmgraph_engine.parallel import processes
from warmgraph_engine.report import Reporter
from warmgraph_engine.startup import Started
from warmgraph_engine.step import Path as StepPath

WORKER = "tests.engine.cuda.rank"

# Two processes that wait for each other in Python, on whatever is left of a busy machine.
pytestmark = pytest.mark.timeout(550)

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 70,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "torch_dtype": "float32",
}
BUCKETS = tuple(
    Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
    for kind, size in ((StepKind.DECODE, 2), (StepKind.PREFILL, 16))
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.engine.texts import byte_level_tokenizer

    folder = tmp_path_factory.mktemp("ranks") / "model"
    folder.mkdir()
    config = parse_config(MODEL)
    (folder / "config.json").write_text(json.dumps(MODEL))
    tensors = checkpoint_tensors(config, random_weights(config, "float32"))
    save_file(tensors, folder / "model.safetensors")
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkingGpu]:
    gpu = WorkingGpu()
    gpu.install(monkeypatch)
    monkeypatch.setattr(processes, "WORKER", WORKER)
    monkeypatch.setattr(startup, "_load_text", lambda *_, **__: None)
    yield gpu
    gc.collect()  # graphs, while their GPU is there


@contextmanager
def started(
    model: Path, cache: Path | None, ranks: int, device: Device = Device.CUDA, **changes: Any
) -> Iterator[tuple[Started, Reporter]]:
    values = {
        "kv_block_size": tiny.options().block_size,
        "kv_cache_bytes": tiny.options().kv_cache_bytes,
        "max_model_length": tiny.options().max_model_length,
        "max_batch_size": tiny.options().max_batch_size,
        "max_batch_tokens": tiny.options().max_batch_tokens,
        "buckets": BUCKETS,
        "rank_timeout_seconds": 600.0,
    }
    config = EngineConfig(
        model=model,
        served_model_name="tiny",
        device=device,
        tensor_parallel_size=ranks,
        cache_directory=cache,
        **{**values, **changes},
    )
    reporter = Reporter(model="tiny", revision="", buckets=config.buckets, started_at=0.0)
    start = startup.start(config, reporter)
    try:
        yield start, reporter
    finally:
        start.close()


def served(start: Started) -> list[Result]:
    engine = Engine(executor=start.executor, sampler=start.sampler, far_rows=0)
    engine.loop._deliver = engine.collect
    sequences = one_of_each_kind()
    arriving = list(sequences)
    while any(engine.result(one).finish is None for one in sequences):
        engine.loop.submit(arriving[:2])
        del arriving[:2]
        engine.loop._turn()
    return [engine.result(one) for one in sequences]


def paths(start: Started) -> dict[str, float]:
    registry = CollectorRegistry()
    for collector in start.metrics():
        registry.register(collector)
    found: dict[str, float] = {}
    for metric in registry.collect():
        for sample in metric.samples:
            if sample.name == "warmgraph_steps_total":
                path = sample.labels["path"]
                found[path] = found.get(path, 0) + sample.value
    return found


def test_two_ranks_give_what_one_cpu_gives_captured_restored_and_eagerly(
    gpu: WorkingGpu, model: Path, tmp_path: Path
) -> None:
    with started(model, None, 1, Device.CPU) as (start, _):
        expected = [result.ids for result in served(start)]
    cache = tmp_path / "cache"
    with started(model, cache, 2) as (start, _):
        assert [result.ids for result in served(start)] == expected
        assert paths(start).keys() >= {StepPath.EXACT, StepPath.PADDED}
        while start.executor.idle_work(busy=False):
            pass
        start.publishing.publish()
    compiled = list(gpu.compiled)
    with started(model, cache, 2) as (start, reporter):
        assert reporter.cache.result is CacheResult.HIT
        assert reporter.snapshot().check.message == "2 by stored answer, 0 in full"
        assert gpu.compiled == compiled, "a restored start compiles nothing"
        assert [result.ids for result in served(start)] == expected


def test_a_bucket_that_one_gpu_cannot_have_is_in_fallback_on_both(
    gpu: WorkingGpu, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_rank_fail(monkeypatch, "load decode 2", WORKER)
    with closing(
        StartedEngine(
            model,
            None,
            device=Device.CUDA,
            tensor_parallel_size=2,
            max_model_length=32,
            max_batch_size=4,
            max_batch_tokens=16,
            rank_timeout_seconds=600.0,
            buckets=tuple(
                Bucket(kind=StepKind.DECODE, size=size, mode=BucketMode.EAGER) for size in (2, 4)
            ),
        )
    ) as two:
        padded, eager = fallback_logits(two)
    assert np.array_equal(padded, eager)


def test_a_gpu_that_cannot_run_all_of_a_sum_at_once_is_refused(
    gpu: WorkingGpu, model: Path
) -> None:
    """Its programs wait for those of the other GPU: each must be there."""
    gpu.multiprocessors = 100
    with (
        pytest.raises(ModelError, match=r"size 2: .* has 100 multiprocessors, .* needs 128"),
        started(model, None, 2),
    ):
        pass
