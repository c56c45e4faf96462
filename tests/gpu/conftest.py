"""Models with random weights on the GPU, and beside each a reference on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.engine.cuda.models import (
    Reference,
    checkpoint_tensors,
    llama_values,
    random_weights,
)
from tests.engine.process.engines import Start, starting
from tests.engine.texts import VOCABULARY, byte_level_tokenizer
from warmgraph_api.resource import Quantization
from warmgraph_engine.backends.base import Graph, GraphImage
from warmgraph_engine.backends.cpu.memory import DTYPES
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.models.config import parse_config
from warmgraph_engine.models.weights import weight_specs
from warmgraph_engine.shapes import StepShape, shape_of
from warmgraph_engine.step import Step


class Served:
    """A backend and what it should compute."""

    def __init__(
        self,
        folder: Path,
        values: dict[str, Any],
        dtype: str,
        stored: str,
        quantization: Quantization,
        **changes: int,
    ) -> None:
        self.config = parse_config(values)
        sizes: dict[str, Any] = {
            "quantization": quantization,
            "block_size": 16,
            "kv_cache_bytes": 16 << 20,
            "max_model_length": 2048,
            "max_batch_size": 32,
            "max_batch_tokens": 512,
        }
        self.settings = BackendSettings(dtype=dtype, **{**sizes, **changes})
        weights = random_weights(self.config, stored)
        (folder / "config.json").write_text(json.dumps(values))
        save_file(checkpoint_tensors(self.config, weights), folder / "model.safetensors")
        self.backend = CudaBackend(Checkpoint(folder), self.settings)
        self.backend.finish_loading()
        projections = {
            f"weights.{spec.name}"
            for spec in weight_specs(self.config, ["lm_head.weight"])
            if self.settings.quantizes(spec)
        }
        used = {
            # A projection is quantized as it is stored, whatever the others are rounded to.
            name: (tensor if name in projections else tensor.to(DTYPES[dtype])).float()
            for name, tensor in weights.items()
        }
        exact = BackendSettings(
            dtype="float32", **{**sizes, **changes, "kv_cache_bytes": 128 << 20}
        )
        self.reference = Reference(self.config, exact, used)

    def capture(self, shape: StepShape) -> tuple[Graph, GraphImage]:
        image = self.backend.recorder.record(shape.tokens, shape)
        return self.backend.player.load(image), image

    def eager(self, step: Step) -> np.ndarray:
        shape = shape_of(step)
        self.backend.buffers.fill(step, shape)
        self.backend.run_eagerly(shape)
        return self.backend.logits(shape.logit_rows).copy()

    def replay(self, graph: Graph, step: Step, shape: StepShape) -> np.ndarray:
        """The logits of the step's rows."""
        self.backend.buffers.fill(step, shape)
        graph.replay()
        return self.backend.logits(shape_of(step).logit_rows).copy()

    def error(self, step: Step, logits: np.ndarray) -> float:
        want = self.reference.run(step)
        return float(((torch.from_numpy(logits) - want).norm(dim=1) / want.norm(dim=1)).max())


def write_servable(folder: Path, *, seed: int = 0) -> Path:
    """A checkpoint that a whole engine starts with on a GPU, whose tokens are bytes."""
    folder.mkdir(parents=True)
    values = llama_values(vocab_size=VOCABULARY)
    config = parse_config(values)
    weights = random_weights(config, "bfloat16", seed)
    (folder / "config.json").write_text(json.dumps(values))
    save_file(checkpoint_tensors(config, weights), folder / "model.safetensors")
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture(scope="session")
def servable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_servable(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Served]:
    """(config.json values, dtype, type in the file, quantization) → Served, made once."""
    made: dict[str, Served] = {}

    def make(
        values: dict[str, Any],
        dtype: str = "bfloat16",
        stored: str = "",
        quantization: Quantization = Quantization.NONE,
        **changes: int,
    ) -> Served:
        key = json.dumps([values, dtype, stored, quantization, changes])
        if key not in made:
            folder = tmp_path_factory.mktemp("model")
            made[key] = Served(folder, values, dtype, stored or dtype, quantization, **changes)
        return made[key]

    return make


@pytest.fixture
def start(tmp_path: Path, servable: Path) -> Iterator[Start]:
    flags = [f"--model={servable}", "--device=cuda", "--kv-cache-memory=16Mi"]
    # The known answers' contexts are some 20 tokens: more than the smaller bucket holds.
    with starting(tmp_path, *flags, "--prefill-buckets=16,32") as start:
        yield start
