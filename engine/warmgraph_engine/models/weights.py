"""Which tensors the step functions need, and which tensors of a checkpoint each is made of.

Projections that read the same input are joined (q, k and v; gate and up), so that one matrix
product serves them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from warmgraph_engine.models.config import Family, ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSpec:
    name: str
    """Ours, and of the arena's region."""
    shape: tuple[int, ...]
    """(outputs, inputs) of a projection."""
    parts: tuple[str, ...]
    """Names in the checkpoint, joined along the first dimension."""
    transposed: bool = False
    """The checkpoint holds it as (inputs, outputs)."""
    projection: bool = False
    """The matrix of a projection in a layer: what quantization makes smaller."""
    shared_axis: int | None = None
    """Of each part, the dimension of which every rank holds an equal share (models/shard.py); None
    if every rank holds all of it. `shape` is that of one rank."""

    @property
    def scale_name(self) -> str:
        """Of the scales, one for each row, that a quantized projection has beside it."""
        return f"{self.name.removesuffix('weight')}scale"


def weight_specs(config: ModelConfig, names: Collection[str]) -> list[WeightSpec]:
    """Every weight of a model; `names` are the checkpoint's, which tell some variants apart."""
    make = _llama if config.family is Family.LLAMA else _gpt2
    return list(make(config, names))


def _pair(
    name: str, outputs: int, inputs: int, parts: tuple[str, ...], *, bias: bool, shared_axis: int
) -> Iterator[WeightSpec]:
    """Weight and, where there is one, bias of a projection."""
    yield WeightSpec(
        name=f"{name}.weight",
        shape=(outputs, inputs),
        parts=tuple(f"{part}.weight" for part in parts),
        projection=True,
        shared_axis=shared_axis,
    )
    if bias:
        yield WeightSpec(
            name=f"{name}.bias",
            shape=(outputs,),
            parts=tuple(f"{part}.bias" for part in parts),
            # Of a product that the ranks add up, the bias is added once, to the sum.
            shared_axis=0 if shared_axis == 0 else None,
        )


def _vector(name: str, size: int, part: str) -> WeightSpec:
    return WeightSpec(name=name, shape=(size,), parts=(part,))


def _llama(config: ModelConfig, names: Collection[str]) -> Iterator[WeightSpec]:
    hidden, head = config.hidden, config.head_dim
    embedding = "model.embed_tokens.weight"
    table = (config.vocabulary, hidden)
    yield WeightSpec(name="embedding", shape=table, parts=(embedding,))
    for layer in range(config.layers):
        ours, theirs = f"layers.{layer}", f"model.layers.{layer}"
        attention, mlp = f"{theirs}.self_attn", f"{theirs}.mlp"
        yield _vector(f"{ours}.attention_norm", hidden, f"{theirs}.input_layernorm.weight")
        yield from _pair(
            f"{ours}.qkv",
            (config.heads + 2 * config.kv_heads) * head,
            hidden,
            (f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"),
            bias=config.qkv_bias,
            shared_axis=0,
        )
        if config.qk_norm:
            yield _vector(f"{ours}.q_norm", head, f"{attention}.q_norm.weight")
            yield _vector(f"{ours}.k_norm", head, f"{attention}.k_norm.weight")
        yield from _pair(
            f"{ours}.output",
            hidden,
            config.heads * head,
            (f"{attention}.o_proj",),
            bias=config.output_bias,
            shared_axis=1,
        )
        yield _vector(f"{ours}.mlp_norm", hidden, f"{theirs}.post_attention_layernorm.weight")
        yield from _pair(
            f"{ours}.gate_up",
            2 * config.intermediate,
            hidden,
            (f"{mlp}.gate_proj", f"{mlp}.up_proj"),
            bias=config.mlp_bias,
            shared_axis=0,
        )
        yield from _pair(
            f"{ours}.down",
            hidden,
            config.intermediate,
            (f"{mlp}.down_proj",),
            bias=config.mlp_bias,
            shared_axis=1,
        )
    yield _vector("norm", hidden, "model.norm.weight")
    if not config.tied_embeddings and "lm_head.weight" in names:
        yield WeightSpec(name="head", shape=table, parts=("lm_head.weight",))


def _gpt2(config: ModelConfig, names: Collection[str]) -> Iterator[WeightSpec]:
    prefix = "transformer." if "transformer.wte.weight" in names else ""
    hidden = config.hidden

    def linear(name: str, outputs: int, inputs: int, part: str) -> Iterator[WeightSpec]:
        yield WeightSpec(
            name=f"{name}.weight",
            shape=(outputs, inputs),
            parts=(f"{part}.weight",),
            transposed=True,
            projection=True,
        )
        yield _vector(f"{name}.bias", outputs, f"{part}.bias")

    def norm(name: str, part: str) -> Iterator[WeightSpec]:
        yield _vector(f"{name}.weight", hidden, f"{part}.weight")
        yield _vector(f"{name}.bias", hidden, f"{part}.bias")

    table = (config.vocabulary, hidden)
    yield WeightSpec(name="embedding", shape=table, parts=(f"{prefix}wte.weight",))
    yield WeightSpec(
        name="positions", shape=(config.max_positions, hidden), parts=(f"{prefix}wpe.weight",)
    )
    for layer in range(config.layers):
        ours, theirs = f"layers.{layer}", f"{prefix}h.{layer}"
        yield from norm(f"{ours}.attention_norm", f"{theirs}.ln_1")
        yield from linear(f"{ours}.qkv", 3 * hidden, hidden, f"{theirs}.attn.c_attn")
        yield from linear(f"{ours}.output", hidden, hidden, f"{theirs}.attn.c_proj")
        yield from norm(f"{ours}.mlp_norm", f"{theirs}.ln_2")
        yield from linear(f"{ours}.up", config.intermediate, hidden, f"{theirs}.mlp.c_fc")
        yield from linear(f"{ours}.down", hidden, config.intermediate, f"{theirs}.mlp.c_proj")
    yield from norm("norm", f"{prefix}ln_f")
    if not config.tied_embeddings and "lm_head.weight" in names:
        yield WeightSpec(name="head", shape=table, parts=("lm_head.weight",))
