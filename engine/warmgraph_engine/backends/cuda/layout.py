"""The plan of the device arena and of the pinned host buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from warmgraph_api.resource import Quantization
from warmgraph_engine.arena import ArenaLayout
from warmgraph_engine.backends.cuda.tiling import UNMERGED_ROWS, splits
from warmgraph_engine.backends.settings import (
    BackendSettings,
    buffer_sizes,
    kv_blocks,
    max_tokens,
)
from warmgraph_engine.models import fp8
from warmgraph_engine.models.config import ModelConfig
from warmgraph_engine.models.weights import WeightSpec
from warmgraph_engine.sampling.params import MAX_TOP_LOGPROBS

SPLIT = 256
"""Positions of a split of attention. Half of it would keep more programs busy on one short
sequence, twice of it would merge less on long ones."""

HOST_SETS = 3
"""Sets of pinned buffers: one is written while the device has yet to read the others, as many as
loop.py hands over ahead."""

REDUCE_PROGRAMS = 128
"""Of a sum over all ranks, at most: fewer than the GPU has multiprocessors (an H200 has 132), so
that all of them are resident at once."""

DRAW_FIELDS = 12
"""Of a draw, see kernels/draw.py."""

IN_PROMPT = 1 << 30
"""Of a token's count in `slots.counts`: it is in the prompt. Below it, how often it is in the
output."""

SCORE_FIELDS = 3 + 2 * MAX_TOP_LOGPROBS
"""Of a drawn token's score, see kernels/draw.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The dimensions that a step is built for, beside its own shape."""

    dtype: str
    """Of activations and KV cache, and of the weights that are not quantized."""
    quantized: bool
    """Whether projections are fp8 with a scale for each row."""
    block_size: int
    table_width: int
    max_sequences: int
    max_length: int
    split: int = SPLIT
    """Positions of a split of attention."""
    max_tokens: int = 0
    """Of a step: rows of an inbox. Of importance to several ranks only, as is the next."""
    rank: int = 0


def geometry(settings: BackendSettings) -> Geometry:
    return Geometry(
        dtype=settings.dtype,
        quantized=settings.quantization is Quantization.FP8,
        block_size=settings.block_size,
        table_width=-(-settings.max_model_length // settings.block_size),
        max_sequences=settings.max_batch_size,
        max_length=settings.max_model_length,
        max_tokens=max_tokens(settings),
        rank=settings.rank,
    )


def plan_device(
    config: ModelConfig, settings: BackendSettings, specs: Sequence[WeightSpec]
) -> ArenaLayout:
    """Weights, KV cache, static buffers, and the intermediates of a step."""
    layout = ArenaLayout()
    for spec in specs:
        if settings.quantizes(spec):
            layout.add(f"weights.{spec.name}", fp8.DTYPE, spec.shape)
            layout.add(f"weights.{spec.scale_name}", "float32", spec.shape[:1])
        else:
            layout.add(f"weights.{spec.name}", settings.dtype, spec.shape)
    if config.rope is not None:
        for name in ("cos", "sin"):
            table = (settings.max_model_length, config.head_dim // 2)
            layout.add(f"weights.rope.{name}", "float32", table)
    blocks = kv_blocks(config, settings)
    for layer in range(config.layers):
        for name in ("key", "value"):
            cache = (blocks, config.kv_heads, settings.block_size, config.head_dim)
            layout.add(f"kv.{layer}.{name}", settings.dtype, cache)
    sizes = buffer_sizes(config, settings)
    for name, dtype, shape in sizes.regions():
        layout.add(f"buffers.{name}", dtype, shape)
    for name, dtype, shape in _draw_inputs(settings):
        layout.add(f"buffers.{name}", dtype, shape)
    layout.add("buffers.last_drawn", "int32", (settings.max_batch_size,))
    by_slot = (settings.max_batch_size, config.vocabulary)
    layout.add("slots.bias", "float32", by_slot)
    layout.add("slots.counts", "int32", by_slot)
    _add_work(layout, config, settings, sizes.tokens)
    return layout


def plan_host(config: ModelConfig, settings: BackendSettings) -> ArenaLayout:
    """One of the sets of pinned memory that steps are written to, with the names and shapes of the
    static buffers."""
    layout = ArenaLayout()
    for name, dtype, shape in buffer_sizes(config, settings).regions():
        if name != "logits":
            layout.add(f"host.{name}", dtype, shape)
    for name, dtype, shape in _draw_inputs(settings):
        layout.add(f"host.{name}", dtype, shape)
    return layout


def plan_results(settings: BackendSettings) -> ArenaLayout:
    """Pinned memory that steps leave their tokens in, and their scores, by slot: a row for each set
    of inputs."""
    layout = ArenaLayout()
    by_set = (HOST_SETS, settings.max_batch_size)
    layout.add("results.drawn", "int32", by_set)
    layout.add("results.scores", "float64", (*by_set, SCORE_FIELDS))
    if settings.ranks > 1:
        layout.add("results.lost", "int32", (1,))
    return layout


def plan_peers(config: ModelConfig, settings: BackendSettings) -> ArenaLayout:
    """Memory of one rank that all ranks write to, see kernels/reduce.py."""
    layout = ArenaLayout()
    inbox = (2, settings.ranks, max_tokens(settings), config.hidden)
    layout.add("peers.inbox", "float32", inbox)
    layout.add("peers.flags", "int64", (settings.ranks, REDUCE_PROGRAMS))
    return layout


def _draw_inputs(settings: BackendSettings) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(name, type, shape) of the inputs that a step needs for drawing, beside the static buffers of
    every backend."""
    yield "draws", "float64", (DRAW_FIELDS, settings.max_batch_size)
    yield "set", "int32", (1,)


def _add_work(
    layout: ArenaLayout, config: ModelConfig, settings: BackendSettings, tokens: int
) -> None:
    heads = config.heads * config.head_dim
    qkv = heads + 2 * config.kv_heads * config.head_dim
    layout.add("work.residual", settings.dtype, (tokens, config.hidden))
    layout.add("work.x", settings.dtype, (tokens, config.hidden))
    layout.add("work.query", settings.dtype, (tokens, heads))
    layout.add("work.attended", settings.dtype, (tokens, heads))
    layout.add("work.activation", settings.dtype, (tokens, config.intermediate))
    # Partial sums of the projections that may be split, of which one is in use at a time.
    projections = (
        (qkv, config.hidden),
        (config.hidden, heads),
        (config.hidden, config.intermediate),
    )
    partial = max(
        n * max(tokens, splits(n, k) * min(tokens, UNMERGED_ROWS)) for n, k in projections
    )
    layout.add("work.partial", "float32", (partial,))
    sequences = settings.max_batch_size
    parts = sequences * -(-settings.max_model_length // SPLIT) * config.heads
    layout.add("work.part", "float32", (parts, config.head_dim))
    layout.add("work.part_best", "float32", (parts,))
    layout.add("work.part_mass", "float32", (parts,))
    layout.add("work.changed", "float32", (sequences, config.vocabulary))
    layout.add("work.arrived", "int32", (sequences, config.kv_heads))
    if settings.ranks > 1:
        layout.add("work.places", "int64", (2, settings.ranks))
        layout.add("work.reductions", "int64", (3,))
