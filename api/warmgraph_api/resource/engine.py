"""`spec.engine`: how the model is run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.resource.base import NO_WHITE_SPACE, MemoryQuantity, Resource, rule, rules


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


class DType(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Quantization(StrEnum):
    NONE = "none"
    FP8 = "fp8"


class Execution(StrEnum):
    GRAPHS = "Graphs"
    EAGER = "Eager"


class KVCache(Resource, frozen=True, kw_only=True):
    """The paged KV cache."""

    block_size: Annotated[int, Meta(ge=2, le=256, description="Positions in one block.")] = 16
    memory: Annotated[
        MemoryQuantity,
        Meta(description="Memory for all blocks, as a quantity such as 512Mi or 40Gi."),
    ] = "512Mi"


class SpeculativeMethod(StrEnum):
    NONE = "None"
    NGRAM = "NGram"


class Speculative(Resource, frozen=True, kw_only=True):
    """Speculative decoding: drafts that the model verifies in one step."""

    method: Annotated[
        SpeculativeMethod,
        Meta(description="NGram: drafts are continuations seen earlier in the same text."),
    ] = SpeculativeMethod.NONE
    tokens: Annotated[int, Meta(ge=1, le=16, description="Draft tokens per step.")] = 4


class Engine(Resource, frozen=True, kw_only=True):
    """How the model is run. Every field is part of the graph cache key or decides pod shape."""

    image: Annotated[
        str,
        Meta(
            max_length=512,
            description="Engine image; the operator's default if empty.",
            extra_json_schema=rules(
                rule(NO_WHITE_SPACE, "engine.image must not contain white space")
            ),
        ),
    ] = ""
    device: Annotated[Device, Meta(description="Where the model runs.")] = Device.CPU
    execution: Annotated[
        Execution,
        Meta(description="Graphs, or Eager to switch graphs off altogether."),
    ] = Execution.GRAPHS
    dtype: Annotated[
        DType,
        Meta(description="auto: float32 on the CPU, the checkpoint's own type on a GPU."),
    ] = DType.AUTO
    quantization: Annotated[
        Quantization,
        Meta(
            description="Of the projections' weights. fp8: 8-bit floating point with a scale for "
            "each row, made of an unquantized checkpoint while it loads. A GPU reads half as much "
            "of them; a CPU computes with the same numbers and gains nothing."
        ),
    ] = Quantization.NONE
    attention_backend: Annotated[
        str,
        Meta(
            max_length=64,
            description="Attention kernels. Only auto for now: each device has one kind.",
            extra_json_schema=rules(
                rule(
                    "self == 'auto'",
                    "engine.attentionBackend can only be auto: each device has one",
                )
            ),
        ),
    ] = "auto"
    tensor_parallel_size: Annotated[
        int, Meta(ge=1, le=64, description="GPUs that share one replica.")
    ] = 1
    max_model_length: Annotated[
        int,
        Meta(ge=16, le=1_048_576, description="Longest prompt plus answer, in tokens."),
    ] = 2048
    max_batch_size: Annotated[
        int, Meta(ge=1, le=4096, description="Most sequences in one step.")
    ] = 8
    max_batch_tokens: Annotated[
        int, Meta(ge=1, le=131_072, description="Most prompt tokens in one prefill chunk.")
    ] = 256
    kv_cache: KVCache = msgspec.field(default_factory=KVCache)
    speculative: Speculative = msgspec.field(default_factory=Speculative)


ENGINE_RULES = rules(
    rule(
        "self.device == 'cuda' || self.tensorParallelSize == 1",
        "engine.tensorParallelSize above 1 needs engine.device: cuda",
        at=".tensorParallelSize",
    ),
    rule(
        "self.tensorParallelSize == 1 || self.quantization == 'none'",
        "engine.quantization fp8 and tensorParallelSize above 1 do not go together: choose one",
        at=".quantization",
    ),
    rule(
        "self.device == 'cuda' || self.dtype != 'float16'",
        "engine.dtype float16 needs engine.device: cuda; the CPU runs float32 or bfloat16",
        at=".dtype",
    ),
    rule(
        "self.kvCache.blockSize <= self.maxModelLength",
        "engine.kvCache.blockSize is above engine.maxModelLength: no sequence would fill a block",
        at=".kvCache.blockSize",
    ),
)
