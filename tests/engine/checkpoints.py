"""Tiny checkpoints with random weights, and backends that hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.engine.texts import VOCABULARY, byte_level_tokenizer
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.step import Step, StepRow

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
    "tie_word_embeddings": True,
}


def tensors(seed: int = 0) -> dict[str, np.ndarray]:
    """Weights for CONFIG."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * 0.3).astype(np.float32)

    result = {"model.embed_tokens.weight": matrix(97, 32)}
    for layer in range(2):
        name = f"model.layers.{layer}"
        result |= {
            f"{name}.input_layernorm.weight": np.ones(32, np.float32),
            f"{name}.post_attention_layernorm.weight": np.ones(32, np.float32),
            f"{name}.self_attn.q_proj.weight": matrix(32, 32),
            f"{name}.self_attn.k_proj.weight": matrix(16, 32),
            f"{name}.self_attn.v_proj.weight": matrix(16, 32),
            f"{name}.self_attn.o_proj.weight": matrix(32, 32),
            f"{name}.mlp.gate_proj.weight": matrix(48, 32),
            f"{name}.mlp.up_proj.weight": matrix(48, 32),
            f"{name}.mlp.down_proj.weight": matrix(32, 48),
        }
    result["model.norm.weight"] = np.ones(32, np.float32)
    return result


def write_checkpoint(folder: Path, *, seed: int = 0, **config: Any) -> Path:
    """A servable checkpoint, but for its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    save_file(tensors(seed), folder / "model.safetensors")
    return folder


GPT2_CONFIG: dict[str, Any] = {
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 97,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 256,
    "layer_norm_epsilon": 1e-5,
    "torch_dtype": "float32",
}


def write_gpt2_checkpoint(folder: Path, *, seed: int = 0) -> Path:
    """The same of GPT-2."""
    random = np.random.default_rng(seed)

    def values(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.3).astype(np.float32)

    weights = {"wte.weight": values(97, 32), "wpe.weight": values(256, 32)}
    sizes = {"attn.c_attn": (32, 96), "attn.c_proj": (32, 32), "mlp.c_fc": (32, 128)}
    for layer in range(2):
        for name, (inputs, outputs) in {**sizes, "mlp.c_proj": (128, 32)}.items():
            weights[f"h.{layer}.{name}.weight"] = values(inputs, outputs)
            weights[f"h.{layer}.{name}.bias"] = values(outputs)
        for name in ("ln_1", "ln_2"):
            weights[f"h.{layer}.{name}.weight"] = 1 + values(32)
            weights[f"h.{layer}.{name}.bias"] = values(32)
    weights |= {"ln_f.weight": 1 + values(32), "ln_f.bias": values(32)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(GPT2_CONFIG))
    tensors = {f"transformer.{name}": value for name, value in weights.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_servable_checkpoint(folder: Path, *, seed: int = 3) -> Path:
    """One that a whole engine starts with, whose tokens are bytes. Anybody may read it."""
    write_checkpoint(folder, vocab_size=VOCABULARY)
    weights = load_file(folder / "model.safetensors")
    random = np.random.default_rng(seed)
    weights["model.embed_tokens.weight"] = random.standard_normal((VOCABULARY, 32)).astype("f4")
    save_file(weights, folder / "model.safetensors")
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    for path in [folder, *folder.iterdir()]:
        path.chmod(0o755)
    return folder


SETTINGS = BackendSettings(
    dtype="float32",
    block_size=4,
    kv_cache_bytes=64 << 10,
    max_model_length=64,
    max_batch_size=8,
    max_batch_tokens=32,
)


def backend(folder: Path, settings: BackendSettings = SETTINGS) -> CpuBackend:
    return CpuBackend(Checkpoint(folder), settings)


def prefill(
    token_ids: list[int], blocks: list[int], *, start: int = 0, logit_rows: int = 1
) -> Step:
    row = StepRow(
        token_ids=token_ids,
        start_position=start,
        block_table=BlockTable(blocks),
        logit_rows=logit_rows,
    )
    return Step(kind=StepKind.PREFILL, rows=[row])


def decode(*rows: tuple[int, int, list[int]]) -> Step:
    """Rows of (token, position, blocks)."""
    return Step(
        kind=StepKind.DECODE,
        rows=[
            StepRow(
                token_ids=[token],
                start_position=position,
                block_table=BlockTable(blocks),
                logit_rows=1,
            )
            for token, position, blocks in rows
        ],
    )
