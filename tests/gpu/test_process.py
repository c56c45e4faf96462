"""`warmgraph-engine --device cuda` as a process, and its second start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import save_file

from tests.engine.cuda.models import checkpoint_tensors, llama_values, random_weights
from tests.engine.process.test_process import Engine
from tests.engine.texts import VOCABULARY, byte_level_tokenizer
from warmgraph_engine.models.config import parse_config

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    folder.mkdir()
    values = llama_values(vocab_size=VOCABULARY)
    config = parse_config(values)
    tensors = checkpoint_tensors(config, random_weights(config, "bfloat16"))
    (folder / "config.json").write_text(json.dumps(values))
    save_file(tensors, folder / "model.safetensors")
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture
def start(tmp_path: Path, model: Path) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def start(*arguments: str) -> Engine:
        flags = [f"--model={model}", "--device=cuda", "--kv-cache-memory=16Mi", *arguments]
        # The known answers' contexts are some 20 tokens: more than the smaller bucket holds.
        flags.append("--prefill-buckets=16,32")
        engines.append(Engine(flags, tmp_path / f"log-{len(engines)}"))
        return engines[-1]

    yield start
    for engine in engines:
        if engine.process.poll() is None:
            engine.process.kill()
            engine.process.wait()


def libraries(engine: Engine) -> str:
    """What the process has mapped."""
    return Path(f"/proc/{engine.process.pid}/maps").read_text()


def test_the_second_start_restores_the_graphs_without_torch_or_a_compiler(
    start: Callable[..., Engine], tmp_path: Path
) -> None:
    cache = f"--cache-directory={tmp_path / 'cache'}"
    first = start(cache)
    first.serve()
    answer = first.complete("hello there")
    metrics = first.get("/metrics")[1]
    assert 'kind="decode",path="exact",reason="bucket"' in metrics
    assert "libtorch" not in libraries(first)
    first.wait_for(lambda: "stored 4 graphs" in first.log)
    assert first.stop() == 0

    second = start(cache)
    second.serve()
    assert "graph cache: Hit" in second.log
    assert "known answers: 4 by stored answer, 0 in full" in second.log
    assert second.complete("hello there") == answer
    assert "libtorch" not in libraries(second)
    assert "libtriton" not in libraries(second)
    assert second.stop() == 0

    eager = start("--execution=Eager")
    eager.serve()
    assert eager.complete("hello there") == answer
    assert eager.stop() == 0


def test_graphs_of_another_quantization_are_a_miss_and_its_own_are_restored(
    start: Callable[..., Engine], tmp_path: Path
) -> None:
    cache = f"--cache-directory={tmp_path / 'cache'}"
    plain = start(cache)
    plain.serve()
    plain.wait_for(lambda: "stored 4 graphs" in plain.log)
    assert plain.stop() == 0

    quantized = start(cache, "--quantization=fp8")
    quantized.serve()
    assert "quantization is fp8, stored graphs have none" in quantized.log
    answer = quantized.complete("hello there")
    quantized.wait_for(lambda: "stored 4 graphs" in quantized.log)
    assert quantized.stop() == 0

    again = start(cache, "--quantization=fp8")
    again.serve()
    assert "graph cache: Hit" in again.log
    assert "known answers: 4 by stored answer, 0 in full" in again.log
    assert again.complete("hello there") == answer
    assert "libtorch" not in libraries(again)
    assert "libtriton" not in libraries(again)
    assert again.stop() == 0
