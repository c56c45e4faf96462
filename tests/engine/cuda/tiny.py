"""A model that is soon interpreted, and the backend that holds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from tests.engine.cuda.gpu import InterpretedGpu
from tests.engine.cuda.models import checkpoint_tensors, random_weights, settings
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.models.config import parse_config

MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 70,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "torch_dtype": "float32",
}


def options(**changes: Any) -> Any:
    """BackendSettings of small buffers."""
    values = {"max_model_length": 32, "max_batch_size": 4, "max_batch_tokens": 16}
    return settings(**{**values, **changes})


def write(folder: Path, *, seed: int = 0, dtype: str = "float32") -> Checkpoint:
    folder.mkdir(parents=True, exist_ok=True)
    config = parse_config(MODEL)
    (folder / "config.json").write_text(json.dumps(MODEL))
    tensors = checkpoint_tensors(config, random_weights(config, dtype, seed))
    save_file(tensors, folder / "model.safetensors")
    return Checkpoint(folder)


def backend_on(gpu: InterpretedGpu, checkpoint: Checkpoint, **changes: Any) -> CudaBackend:
    backend = CudaBackend(checkpoint, options(**changes))
    backend.finish_loading()
    gpu.map(*backend._launcher._sets)
    return backend
