"""Tensor parallelism: the part of a model that one of several ranks holds.

As in Megatron-LM (arXiv 1909.08053): q, k, v, gate and up are cut by outputs, so that a rank has
whole heads with their KV cache; the projections behind them, output and down, by inputs, so that
each rank's product is a summand of the whole. The ranks add those up, twice a layer. Embedding,
norms and head are whole on every rank: all ranks then have the same logits, and none need be sent.
"""

from __future__ import annotations

from dataclasses import replace

from warmgraph_engine.models.config import Family, ModelConfig, ModelError


def shard(config: ModelConfig, ranks: int) -> ModelConfig:
    """The config of one of `ranks` equal parts. Raises ModelError if the model has none such."""
    if ranks == 1:
        return config
    flag = f"--tensor-parallel-size {ranks}"
    if config.family is not Family.LLAMA:
        raise ModelError(f"{flag}: {config.architecture} runs on one rank only")
    for what, count in (
        ("attention heads", config.heads),
        ("KV heads", config.kv_heads),
        ("intermediate columns", config.intermediate),
    ):
        if count % ranks:
            raise ModelError(f"{flag} does not divide the model's {count} {what}")
    return replace(
        config,
        heads=config.heads // ranks,
        kv_heads=config.kv_heads // ranks,
        intermediate=config.intermediate // ranks,
        ranks=ranks,
    )
