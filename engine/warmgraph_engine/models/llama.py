"""The Llama family: Llama, SmolLM2, Mistral, Qwen2 (biases on q, k, v), Qwen3 (norms on q, k)."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn.functional import rms_norm, silu

from warmgraph_engine.models.config import ModelConfig
from warmgraph_engine.models.layers import add_linear, attend, linear, write_logits
from warmgraph_engine.models.steps import Memory, StepFunction, StepInputs


def step_function(config: ModelConfig) -> StepFunction:
    width, eps = (config.hidden,), config.norm_eps
    add = partial(add_linear, ranks=config.ranks)

    def step(memory: Memory, inputs: StepInputs) -> None:
        hidden = memory.tensor("weights.embedding").index_select(0, inputs.input_ids)
        cos = memory.tensor("weights.rope.cos").index_select(0, inputs.positions).unsqueeze(1)
        sin = memory.tensor("weights.rope.sin").index_select(0, inputs.positions).unsqueeze(1)
        for layer in range(config.layers):
            name = f"layers.{layer}"
            norm = memory.tensor(f"weights.{name}.attention_norm")
            x = rms_norm(hidden, width, norm, eps)
            query, key, value = _project(x, memory, config, layer)
            query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
            attended = attend(
                query, key, value, memory=memory, inputs=inputs, config=config, layer=layer
            )
            add(hidden, attended, memory, f"{name}.output", bias=config.output_bias)
            x = rms_norm(hidden, width, memory.tensor(f"weights.{name}.mlp_norm"), eps)
            joined = linear(x, memory, f"{name}.gate_up", bias=config.mlp_bias)
            gate, up = joined.chunk(2, dim=-1)
            add(hidden, silu(gate).mul_(up), memory, f"{name}.down", bias=config.mlp_bias)
        wanted = hidden.index_select(0, inputs.logit_rows)
        normalized = rms_norm(wanted, width, memory.tensor("weights.norm"), eps)
        write_logits(normalized, memory, inputs, config)

    return step


def _project(
    x: torch.Tensor, memory: Memory, config: ModelConfig, layer: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(T, H) → query (T, heads, head_dim), key and value (T, kv_heads, head_dim)."""
    name, head_dim = f"layers.{layer}", config.head_dim
    joined = linear(x, memory, f"{name}.qkv", bias=config.qkv_bias).view(len(x), -1, head_dim)
    parts = [config.heads, config.kv_heads, config.kv_heads]
    query, key, value = torch.split(joined, parts, dim=1)
    if config.qk_norm:
        norms = (memory.tensor(f"weights.{name}.{part}_norm") for part in "qk")
        query = rms_norm(query, (head_dim,), next(norms), config.norm_eps)
        key = rms_norm(key, (head_dim,), next(norms), config.norm_eps)
    return query, key, value


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding; rope.py says how the tables fit."""
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, -1), sin)
