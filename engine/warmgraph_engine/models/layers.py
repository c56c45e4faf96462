"""Parts that the model families share. Shapes: T tokens, H hidden."""

from __future__ import annotations

import torch
from torch.nn import functional

from warmgraph_engine.models.config import ModelConfig
from warmgraph_engine.models.steps import Memory, StepInputs


def linear(x: torch.Tensor, memory: Memory, name: str, *, bias: bool) -> torch.Tensor:
    """x (T, inputs) → (T, outputs)."""
    return functional.linear(
        x,
        memory.tensor(f"weights.{name}.weight"),
        memory.tensor(f"weights.{name}.bias") if bias else None,
    )


def add_linear(
    residual: torch.Tensor, x: torch.Tensor, memory: Memory, name: str, *, bias: bool, ranks: int
) -> None:
    """residual += linear(x), in place: one operation for both. Of several ranks each has a part of
    the columns, and its product is a summand."""
    weight = memory.tensor(f"weights.{name}.weight").t()
    if ranks == 1:
        residual.addmm_(x, weight)
    else:
        product = torch.mm(x, weight)
        torch.ops.warmgraph.all_reduce(product)
        residual.add_(product)
    if bias:
        residual.add_(memory.tensor(f"weights.{name}.bias"))


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    memory: Memory,
    inputs: StepInputs,
    config: ModelConfig,
    layer: int,
) -> torch.Tensor:
    """Store the step's keys and values, then attend: (T, heads * head_dim)."""
    key_cache = memory.tensor(f"kv.{layer}.key")
    value_cache = memory.tensor(f"kv.{layer}.value")
    torch.ops.warmgraph.store_kv(key, value, key_cache, value_cache, inputs.slots)
    result: torch.Tensor = torch.ops.warmgraph.paged_attention(
        query,
        key_cache,
        value_cache,
        inputs.query_starts,
        inputs.context_lengths,
        inputs.block_tables,
        inputs.counts,
        config.head_dim**-0.5,
        config.windows[layer],
    )
    return result.flatten(1)


def write_logits(
    normalized: torch.Tensor, memory: Memory, inputs: StepInputs, config: ModelConfig
) -> None:
    """Logits of the wanted rows (L, H), float32, into the static buffer."""
    head = memory.tensor("weights.embedding" if config.tied_embeddings else "weights.head").t()
    if normalized.dtype == inputs.logits.dtype:
        torch.mm(normalized, head, out=inputs.logits)
    else:
        inputs.logits.copy_(torch.mm(normalized, head))
