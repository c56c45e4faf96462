"""The single launches of a step, for a model and a shape."""

from __future__ import annotations

import math

from warmgraph_api.report import StepKind
from warmgraph_engine.arena import ITEM_BYTES
from warmgraph_engine.backends.cuda import tiling
from warmgraph_engine.backends.cuda.launch import Argument, Launch, Pointer
from warmgraph_engine.backends.cuda.layout import DRAW_FIELDS, IN_PROMPT, Geometry
from warmgraph_engine.backends.cuda.reduction import of_all_ranks
from warmgraph_engine.models import fp8
from warmgraph_engine.models.config import Family, ModelConfig
from warmgraph_engine.sampling.params import MAX_TOP_LOGPROBS
from warmgraph_engine.shapes import StepShape

COPY_BLOCK = 256
"""Elements that a program copies: two for each of its threads."""

CHUNK_ROWS = 64
"""Query rows (tokens times heads of a group) of a program: one matrix instruction high."""

DECODE_ROWS = 16
"""The least that a matrix instruction takes; a group has seldom more heads."""

TILE = 64
"""Positions of one pass of attention."""

DECODE_PROGRAMS = 512
"""Programs of a decode attention, all KV heads together: a few for each multiprocessor, so that
their waits overlap; more work than that is done in turns. Twice as many take 2 % longer."""

DRAW_BLOCK = 8192
"""Logits that a program of the draw reads at a time: the row's program is alone on its
multiprocessor, so what is in flight at once decides how fast it is."""

SAMPLE_BLOCK = 4096
CUT_WAYS = 4
"""The search for a cut keeps a float64 sum for each way and each element of a block in registers;
more ways are fewer passes over smaller blocks."""

DRAW_WARPS = 16

NO_WINDOW = 1 << 30
"""Longer than any sequence."""


class Launches:
    """Asked in the order in which they run: add_norm and split_heads read what the projection
    before them has left in work.partial."""

    def __init__(self, config: ModelConfig, geometry: Geometry, shape: StepShape) -> None:
        self._config, self._geometry, self._shape = config, geometry, shape
        self._layer_norm = config.family is Family.GPT2
        self._item_bytes = ITEM_BYTES[geometry.dtype]
        self._splits = 1  # of the projection in work.partial

    def copy_inputs(self) -> Launch:
        shape, width = self._shape, self._geometry.table_width
        names = (
            ("ids", "input_ids"),
            ("positions", "positions"),
            ("slots", "slots"),
            ("starts", "query_starts"),
            ("lengths", "context_lengths"),
            ("tables", "block_tables"),
            ("logit_rows", "logit_rows"),
            ("draws", "draws"),
            ("set", "set"),
        )
        arguments: dict[str, Argument] = {}
        for ours, theirs in names:
            arguments[f"host_{ours}_ptr"] = Pointer(f"host.{theirs}")
            arguments[f"{ours}_ptr"] = Pointer(f"buffers.{theirs}")
        return Launch(
            kernel="inputs.copy_inputs",
            grid=(max(-(-(shape.tokens + 1) // COPY_BLOCK), shape.sequences), 1, 1),
            arguments={
                **arguments,
                "last_drawn_ptr": Pointer("buffers.last_drawn"),
                "tokens": shape.tokens,
                "sequences": shape.sequences,
                "max_sequences": self._geometry.max_sequences,
                "logit_rows": shape.logit_rows,
                "table_width": width,
            },
            constants={
                "BLOCK_SIZE": self._geometry.block_size,
                "BLOCK": COPY_BLOCK,
                "TABLE_BLOCK": COPY_BLOCK,
                "FIELDS": DRAW_FIELDS,
                "FIELDS_BLOCK": 1 << (DRAW_FIELDS - 1).bit_length(),
            },
            overlaps=False,
        )

    def embed(self) -> Launch:
        learned = self._layer_norm
        table = "weights.positions" if learned else "weights.embedding"
        return Launch(
            kernel="norm.embed_norm",
            grid=(self._shape.tokens, 1, 1),
            arguments={
                "ids_ptr": Pointer("buffers.input_ids"),
                "positions_ptr": Pointer("buffers.positions"),
                "embedding_ptr": Pointer("weights.embedding"),
                "position_embedding_ptr": Pointer(table),
                **self._norm_weights("layers.0.attention_norm"),
                "residual_ptr": Pointer("work.residual"),
                "out_ptr": Pointer("work.x"),
                "eps": self._config.norm_eps,
            },
            constants={**self._norm_constants(), "POSITIONS": int(learned)},
            warps=self._norm_warps(),
            # The kernels after this one read the inputs before they wait, so all inputs must be
            # there before any of them can start.
            overlaps=False,
        )

    def add_norm(self, norm: str, projection: str, *, gather: bool = False) -> Launch:
        """`gather`: only the rows whose logits are wanted."""
        config = self._config
        bias = config.output_bias if projection.endswith("output") else config.mlp_bias
        weight = self._norm_weights(norm)
        rows = self._shape.logit_rows if gather else self._shape.tokens
        launch = Launch(
            kernel="norm.add_norm",
            grid=(rows, 1, 1),
            arguments={
                "partial_ptr": Pointer("work.partial"),
                "projection_bias_ptr": (
                    Pointer(f"weights.{projection}.bias") if bias else weight["weight_ptr"]
                ),
                "rows_ptr": Pointer("buffers.logit_rows"),
                "residual_ptr": Pointer("work.residual"),
                **weight,
                "out_ptr": Pointer("work.x"),
                "tokens": self._shape.tokens,
                "eps": config.norm_eps,
            },
            constants={
                **self._norm_constants(),
                "SPLITS": self._splits,
                "HAS_BIAS": int(bias),
                "GATHER": int(gather),
            },
            warps=self._norm_warps(),
        )
        return of_all_ranks(launch, rows, config.ranks, self._geometry)

    def _norm_weights(self, name: str) -> dict[str, Argument]:
        if not self._layer_norm:
            return {
                "weight_ptr": Pointer(f"weights.{name}"),
                "bias_ptr": Pointer(f"weights.{name}"),
            }
        return {
            "weight_ptr": Pointer(f"weights.{name}.weight"),
            "bias_ptr": Pointer(f"weights.{name}.bias"),
        }

    def _norm_constants(self) -> dict[str, int | str]:
        hidden = self._config.hidden
        return {"H": hidden, "BLOCK_H": _power_of_two(hidden), "LAYER": int(self._layer_norm)}

    def _norm_warps(self) -> int:
        # Four elements of a row for each thread; a row is one program's, so it is latency that
        # counts.
        return max(1, min(16, _power_of_two(self._config.hidden) // 128))

    def project(self, name: str, x: str, n: int, k: int) -> Launch:
        """A projection whose partial sums the next kernel adds up."""
        count = tiling.splits(n, k)
        launch = self._linear(
            weight=f"weights.{name}.weight",
            quantized=self._geometry.quantized,
            x=x,
            out="work.partial",
            rows=self._shape.tokens,
            n=n,
            k=k,
            splits=count,
        )
        self._splits = 1 if launch.constants["MERGE"] else count
        return launch

    def activation(self, name: str) -> Launch:
        config = self._config
        gated = config.family is Family.LLAMA
        projection = f"{name}.gate_up" if gated else f"{name}.up"
        return self._linear(
            weight=f"weights.{projection}.weight",
            quantized=self._geometry.quantized,
            bias=f"weights.{projection}.bias" if config.mlp_bias else None,
            x="work.x",
            out="work.activation",
            rows=self._shape.tokens,
            n=config.intermediate,
            k=config.hidden,
            splits=1,
            gated=gated,
            activation=config.activation,
        )

    def head(self) -> Launch:
        config = self._config
        return self._linear(
            weight="weights.embedding" if config.tied_embeddings else "weights.head",
            x="work.x",
            out="buffers.logits",
            rows=self._shape.logit_rows,
            n=config.vocabulary,
            k=config.hidden,
            splits=1,
        )

    def draw(self) -> Launch:
        return Launch(
            kernel="draw.draw_tokens",
            grid=(self._shape.sequences, 1, 1),
            arguments={
                "logits_ptr": Pointer("buffers.logits"),
                "draws_ptr": Pointer("buffers.draws"),
                "set_ptr": Pointer("buffers.set"),
                "bias_ptr": Pointer("slots.bias"),
                "counts_ptr": Pointer("slots.counts"),
                "changed_ptr": Pointer("work.changed"),
                "drawn_ptr": Pointer("results.drawn"),
                "scores_ptr": Pointer("results.scores"),
                "last_drawn_ptr": Pointer("buffers.last_drawn"),
                "sequences": self._geometry.max_sequences,
                "vocabulary_size": self._config.vocabulary,
            },
            constants={
                "BLOCK": DRAW_BLOCK,
                "SAMPLE_BLOCK": SAMPLE_BLOCK,
                "WAYS": CUT_WAYS,
                "MOST": MAX_TOP_LOGPROBS,
                "IN_PROMPT": IN_PROMPT,
            },
            warps=DRAW_WARPS,
        )

    def _linear(
        self,
        *,
        weight: str,
        x: str,
        out: str,
        rows: int,
        n: int,
        k: int,
        splits: int,
        quantized: bool = False,
        bias: str | None = None,
        gated: bool = False,
        activation: str = "none",
    ) -> Launch:
        weight_bytes = ITEM_BYTES[fp8.DTYPE] if quantized else self._item_bytes
        scale = f"{weight.removesuffix('weight')}scale"
        tile = tiling.tiling(
            rows,
            k,
            count=splits,
            gated=gated,
            item_bytes=self._item_bytes,
            weight_bytes=weight_bytes,
        )
        part = tiling.slice_size(k, splits, tile.block_k)
        even = part * splits == k
        ahead = tiling.prefetch_size(n, part, weight_bytes, gated=gated) if even else 0
        programs = 1 if tile.merge else splits
        return Launch(
            kernel="linear.linear",
            grid=(-(-n // tile.block_n), programs, -(-rows // tile.block_m)),
            arguments={
                "x_ptr": Pointer(x),
                "weight_ptr": Pointer(weight),
                "scale_ptr": Pointer(scale if quantized else weight),
                "bias_ptr": Pointer(bias or weight),
                "out_ptr": Pointer(out),
                "rows": rows,
                "n_size": n,
                "k_size": k,
                "slice_size": part,
                "splits": splits,
                "prefetch_size": ahead,
            },
            constants={
                "GATED": int(gated),
                "ACTIVATION": activation,
                "SCALED": int(quantized),
                "HAS_BIAS": int(bias is not None),
                "MERGE": int(tile.merge),
                "EVEN_N": int(n % tile.block_n == 0),
                "EVEN_K": int(even),
                "BLOCK_M": tile.block_m,
                "BLOCK_N": tile.block_n,
                "BLOCK_K": tile.block_k,
                "STAGES": tile.stages,
            },
            warps=tile.warps,
        )

    def split_heads(self, name: str, layer: int) -> Launch:
        config = self._config
        group = config.heads // config.kv_heads
        unused = Pointer("work.partial")  # the kernel is compiled without what it would point at
        rope = config.rope is not None
        return Launch(
            kernel="heads.split_heads",
            grid=(self._shape.tokens, config.kv_heads, 1),
            arguments={
                "partial_ptr": Pointer("work.partial"),
                "bias_ptr": Pointer(f"weights.{name}.qkv.bias") if config.qkv_bias else unused,
                "q_norm_ptr": Pointer(f"weights.{name}.q_norm") if config.qk_norm else unused,
                "k_norm_ptr": Pointer(f"weights.{name}.k_norm") if config.qk_norm else unused,
                "cos_ptr": Pointer("weights.rope.cos") if rope else unused,
                "sin_ptr": Pointer("weights.rope.sin") if rope else unused,
                "positions_ptr": Pointer("buffers.positions"),
                "slots_ptr": Pointer("buffers.slots"),
                "query_ptr": Pointer("work.query"),
                "key_cache_ptr": Pointer(f"kv.{layer}.key"),
                "value_cache_ptr": Pointer(f"kv.{layer}.value"),
                "tokens": self._shape.tokens,
                "eps": config.norm_eps,
            },
            constants={
                "SPLITS": self._splits,
                "HAS_BIAS": int(config.qkv_bias),
                "QK_NORM": int(config.qk_norm),
                "ROPE": int(rope),
                "HEADS": config.heads,
                "KV_HEADS": config.kv_heads,
                "GROUP_PAD": _power_of_two(group),
                "HEAD_DIM": config.head_dim,
                "BLOCK_SIZE": self._geometry.block_size,
            },
            warps=1 if group == 1 else 2,
        )

    def attention(self, layer: int) -> Launch:
        config, geometry, shape = self._config, self._geometry, self._shape
        group = _power_of_two(config.heads // config.kv_heads)
        arguments: dict[str, Argument] = {
            "query_ptr": Pointer("work.query"),
            "key_cache_ptr": Pointer(f"kv.{layer}.key"),
            "value_cache_ptr": Pointer(f"kv.{layer}.value"),
            "out_ptr": Pointer("work.attended"),
            "tables_ptr": Pointer("buffers.block_tables"),
            "lengths_ptr": Pointer("buffers.context_lengths"),
            "sequences": shape.sequences,
            "table_width": geometry.table_width,
            "window": config.windows[layer] or NO_WINDOW,
            "scale": config.head_dim**-0.5 * math.log2(math.e),
        }
        constants: dict[str, int | str] = {
            "SEQUENCES_PAD": _power_of_two(geometry.max_sequences),
            "HEADS": config.heads,
            "KV_HEADS": config.kv_heads,
            "HEAD_DIM": config.head_dim,
            "BLOCK_SIZE": geometry.block_size,
            "TILE": TILE,
            "SPLIT": geometry.split,
            "STAGES": 2,
        }
        if shape.kind is StepKind.DECODE:
            most = shape.sequences * -(-geometry.max_length // geometry.split)
            programs = min(most, -(-DECODE_PROGRAMS // config.kv_heads))
            return Launch(
                kernel="attention.attention_decode",
                grid=(programs, config.kv_heads, 1),
                arguments={
                    **arguments,
                    "part_ptr": Pointer("work.part"),
                    "part_best_ptr": Pointer("work.part_best"),
                    "part_mass_ptr": Pointer("work.part_mass"),
                    "arrived_ptr": Pointer("work.arrived"),
                },
                constants={**constants, "GROUP_PAD": max(group, DECODE_ROWS)},
            )
        rows = CHUNK_ROWS
        if shape.kind is StepKind.VERIFY:
            each = -(-shape.tokens // shape.sequences)
            rows = min(CHUNK_ROWS, max(DECODE_ROWS, group * _power_of_two(each)))
        tokens = max(1, rows // group)
        return Launch(
            kernel="attention.attention_chunk",
            grid=(shape.tokens // tokens + shape.sequences, config.kv_heads, 1),
            arguments={**arguments, "starts_ptr": Pointer("buffers.query_starts")},
            constants={**constants, "GROUP_PAD": group, "TOKENS": tokens},
        )


def _power_of_two(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()
