"""The engine's settings: flags of the command line into one immutable object.

docs/architecture.md lists the flags; their meaning is that of the resource's fields. A mistake
ends the process with a message that names the flag.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warmgraph_api import ports
from warmgraph_api.report import Bucket, StepKind
from warmgraph_api.resource import (
    BucketPreset,
    CacheMode,
    Device,
    DType,
    Execution,
    OnCaptureFailure,
    Quantization,
    SpeculativeMethod,
    WarmupOrder,
    WarmupPolicy,
)
from warmgraph_engine import buckets
from warmgraph_engine.flags import parser
from warmgraph_engine.graph_mode import GraphMode
from warmgraph_engine.store.policy import Retention, User


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    model: Path
    model_revision: str = ""
    served_model_name: str
    host: str = "0.0.0.0"  # noqa: S104 (a pod's readiness and Service come over its network)
    port: int = ports.ENGINE_PORT
    device: Device = Device.CPU
    execution: Execution = Execution.GRAPHS
    graph_mode: GraphMode = GraphMode.FULL
    dtype: DType = DType.AUTO
    quantization: Quantization = Quantization.NONE
    attention_backend: str = "auto"
    tensor_parallel_size: int = 1
    rank_timeout_seconds: float = 60.0
    """How long a rank may keep the others waiting. The slowest thing they wait for is a prefill
    chunk on a CPU of which they get a tenth, a minute at most."""
    max_model_length: int = 2048
    max_batch_size: int = 8
    max_batch_tokens: int = 256
    kv_block_size: int = 16
    kv_cache_bytes: int = 512 << 20
    speculative_tokens: int = 0
    """Draft tokens per step; 0 without speculative decoding."""
    buckets: tuple[Bucket, ...] = ()
    warmup_policy: WarmupPolicy = WarmupPolicy.REQUIRE_EAGER
    warmup_order: WarmupOrder = WarmupOrder.LARGEST_FIRST
    on_capture_failure: OnCaptureFailure = OnCaptureFailure.FALLBACK
    lazy_capture: bool = True
    lazy_capture_busy_percent: int = 2
    known_answer_check: bool = True
    cache_directory: Path | None = None
    cache_mode: CacheMode = CacheMode.READ_WRITE
    cache_retention: Retention = field(default_factory=Retention)
    cache_user: User | None = None
    """The key's own if there is none."""
    report_socket: Path | None = None


def parse(argv: Sequence[str] | None = None) -> EngineConfig:
    """The settings of a command line. Ends the process (status 2) with a message on a mistake."""
    flags = parser()
    arguments = flags.parse_args(argv)
    try:
        config = _config(arguments)
        _check(config)
    except ValueError as error:
        flags.error(str(error))
    return config


def _check(config: EngineConfig) -> None:
    """Raises ValueError for settings that do not go together."""
    if config.device is Device.CPU and config.dtype is DType.FLOAT16:
        raise ValueError("--dtype float16 needs --device cuda; a CPU runs float32 or bfloat16")
    if config.device is Device.CPU and config.graph_mode is GraphMode.PIECEWISE:
        raise ValueError("--graph-mode Piecewise needs --device cuda")
    if config.tensor_parallel_size > 1 and config.quantization is not Quantization.NONE:
        # The scale of a row that is cut would have to come from all of its ranks.
        raise ValueError(
            f"--tensor-parallel-size above 1 and --quantization {config.quantization} do not go"
            " together: choose one"
        )
    if config.attention_backend != "auto":
        raise ValueError("--attention-backend can only be auto: each device has one")
    longest = config.max_model_length
    if config.kv_block_size > longest:
        raise ValueError(f"--kv-block-size is above --max-model-length {longest}")


def _config(a: argparse.Namespace) -> EngineConfig:
    speculative = SpeculativeMethod(a.speculative_method)
    return EngineConfig(
        model=a.model,
        model_revision=a.model_revision,
        served_model_name=a.served_model_name or a.model.resolve().name,
        host=a.host,
        port=a.port,
        device=Device(a.device),
        execution=Execution(a.execution),
        graph_mode=GraphMode(a.graph_mode),
        dtype=DType(a.dtype),
        quantization=Quantization(a.quantization),
        attention_backend=a.attention_backend,
        tensor_parallel_size=a.tensor_parallel_size,
        rank_timeout_seconds=a.rank_timeout_seconds,
        max_model_length=a.max_model_length,
        max_batch_size=a.max_batch_size,
        max_batch_tokens=a.max_batch_tokens,
        kv_block_size=a.kv_block_size,
        kv_cache_bytes=a.kv_cache_memory,
        speculative_tokens=0 if speculative is SpeculativeMethod.NONE else a.speculative_tokens,
        buckets=tuple(_buckets(a, speculative)),
        warmup_policy=WarmupPolicy(a.warmup_policy),
        warmup_order=WarmupOrder(a.warmup_order),
        on_capture_failure=OnCaptureFailure(a.on_capture_failure),
        lazy_capture=a.lazy_capture,
        lazy_capture_busy_percent=a.lazy_capture_busy_percent,
        known_answer_check=a.known_answer_check,
        cache_directory=a.cache_directory,
        cache_mode=CacheMode(a.cache_mode),
        cache_retention=Retention(revisions=a.cache_keep_revisions, max_bytes=a.cache_max_size),
        cache_user=a.cache_user,
        report_socket=a.report_socket,
    )


def _buckets(a: argparse.Namespace, speculative: SpeculativeMethod) -> list[Bucket]:
    """The declared buckets. Raises ValueError where a list contradicts the limits."""
    result = []
    for kind, limit_flag, limit in (
        (StepKind.DECODE, "--max-batch-size", a.max_batch_size),
        (StepKind.PREFILL, "--max-batch-tokens", a.max_batch_tokens),
        (StepKind.VERIFY, "--max-batch-size", a.max_batch_size),
    ):
        eager = getattr(a, f"{kind}_buckets")
        lazy = getattr(a, f"{kind}_buckets_lazy")
        for size in (*eager, *lazy):
            if size > limit:
                raise ValueError(f"--{kind}-buckets: {size} is above {limit_flag} {limit}")
        result += buckets.declared(kind, eager, lazy)
    if speculative is SpeculativeMethod.NONE and any(b.kind is StepKind.VERIFY for b in result):
        raise ValueError("--verify-buckets need --speculative-method")
    name = BucketPreset(a.buckets_preset)
    if name is BucketPreset.NONE:
        return result
    if result:
        raise ValueError("--buckets-preset replaces the lists: give a preset or lists, not both")
    return buckets.preset(
        name,
        max_batch_size=a.max_batch_size,
        max_batch_tokens=a.max_batch_tokens,
        verify=speculative is not SpeculativeMethod.NONE,
    )
