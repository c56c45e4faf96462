"""What decides an arena's layout beside the model: settings common to every backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warmgraph_api.resource import Quantization
from warmgraph_engine.arena import ITEM_BYTES, ArenaLayout
from warmgraph_engine.buffers import BufferSizes
from warmgraph_engine.graph_mode import GraphMode
from warmgraph_engine.models.config import ModelConfig, ModelError
from warmgraph_engine.models.weights import WeightSpec
from warmgraph_engine.step import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    dtype: str
    block_size: int
    kv_cache_bytes: int
    max_model_length: int
    max_batch_size: int
    max_batch_tokens: int
    max_tokens_per_sequence: int = 1
    """Of decode and verify steps: 1 + draft tokens."""
    graph_mode: GraphMode = GraphMode.FULL
    quantization: Quantization = Quantization.NONE
    rank: int = 0
    ranks: int = 1
    """Of tensor parallelism. Memory for the KV cache is each rank's."""

    def quantizes(self, spec: WeightSpec) -> bool:
        """Whether this weight is held as fp8 with a scale for each row."""
        return spec.projection and self.quantization is Quantization.FP8


def kv_blocks(config: ModelConfig, settings: BackendSettings) -> int:
    """Blocks that the cache's memory holds, the dummy block included."""
    numbers = 2 * config.layers * settings.block_size * config.kv_heads * config.head_dim
    return settings.kv_cache_bytes // (numbers * ITEM_BYTES[settings.dtype])


def limits(config: ModelConfig, settings: BackendSettings) -> Limits:
    """What the deciding side plans with. Raises ModelError if the settings don't fit the model."""
    if settings.max_model_length > config.max_positions:
        raise ModelError(
            f"--max-model-length {settings.max_model_length} is above the model's"
            f" {config.max_positions} positions"
        )
    blocks = kv_blocks(config, settings) - 1
    if blocks < 1:
        raise ModelError("--kv-cache-memory holds not even one block beside the dummy block")
    return Limits(
        vocabulary=config.vocabulary,
        block_size=settings.block_size,
        blocks=blocks,
        max_model_length=settings.max_model_length,
        max_batch_size=settings.max_batch_size,
        max_batch_tokens=settings.max_batch_tokens,
    )


def max_tokens(settings: BackendSettings) -> int:
    """Of a step of any kind."""
    return max(
        settings.max_batch_tokens, settings.max_batch_size * settings.max_tokens_per_sequence
    )


def buffer_sizes(config: ModelConfig, settings: BackendSettings) -> BufferSizes:
    tokens = max_tokens(settings)
    return BufferSizes(
        tokens=tokens,
        sequences=settings.max_batch_size,
        logit_rows=tokens,
        table_width=-(-settings.max_model_length // settings.block_size),
        vocabulary=config.vocabulary,
    )


def plan_arena(
    config: ModelConfig, settings: BackendSettings, specs: Sequence[WeightSpec]
) -> ArenaLayout:
    """Weights, then the KV cache, then the static buffers."""
    layout = ArenaLayout()
    for spec in specs:
        layout.add(f"weights.{spec.name}", settings.dtype, spec.shape)
    if config.rope is not None:
        for name in ("cos", "sin"):
            table = (settings.max_model_length, config.head_dim)
            layout.add(f"weights.rope.{name}", settings.dtype, table)
    blocks = kv_blocks(config, settings)
    for layer in range(config.layers):
        for name in ("key", "value"):
            cache = (blocks, settings.block_size, config.kv_heads, config.head_dim)
            layout.add(f"kv.{layer}.{name}", settings.dtype, cache)
    for name, dtype, shape in buffer_sizes(config, settings).regions():
        layout.add(f"buffers.{name}", dtype, shape)
    return layout


def kv_layout(config: ModelConfig, settings: BackendSettings) -> str:
    """For the cache key: whatever a graph assumes of the KV cache."""
    return (
        f"per layer key, value [{kv_blocks(config, settings)} blocks, {settings.block_size}"
        f" positions, {config.kv_heads} heads, {config.head_dim}]"
    )
