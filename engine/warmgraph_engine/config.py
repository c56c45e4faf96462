"""The engine's settings: flags of the command line into one immutable object.

docs/architecture.md lists the flags; their meaning is that of the resource's fields. A mistake
ends the process with a message that names the flag.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    model: Path
    model_revision: str = ""
    served_model_name: str
    host: str = "0.0.0.0"  # noqa: S104 (a pod's readiness and Service come over its network)
    port: int = ports.ENGINE_PORT
    device: Device = Device.CPU
    execution: Execution = Execution.GRAPHS
    dtype: DType = DType.AUTO
    quantization: Quantization = Quantization.NONE
    attention_backend: str = "auto"
    tensor_parallel_size: int = 1
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
    lazy_capture_busy_percent: int = 10
    known_answer_check: bool = True
    cache_directory: Path | None = None
    cache_mode: CacheMode = CacheMode.READ_WRITE
    cache_keep_entries: int = 3
    report_socket: Path | None = None


def parse(argv: Sequence[str] | None = None) -> EngineConfig:
    """The settings of a command line. Ends the process (status 2) with a message on a mistake."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        return _config(arguments)
    except ValueError as error:
        parser.error(str(error))


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
        dtype=DType(a.dtype),
        quantization=Quantization(a.quantization),
        attention_backend=a.attention_backend,
        tensor_parallel_size=a.tensor_parallel_size,
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
        cache_keep_entries=a.cache_keep_entries,
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
        name, max_batch_size=a.max_batch_size, max_batch_tokens=a.max_batch_tokens
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="warmgraph-engine",
        description="OpenAI-compatible server whose steps replay stored graphs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    _add_serving(parser.add_argument_group("serving"))
    _add_engine(parser.add_argument_group("engine"))
    _add_buckets(parser.add_argument_group("buckets"))
    _add_warmup(parser.add_argument_group("warmup and graph cache"))
    return parser


def _add_serving(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder")
    group.add_argument("--model-revision", default="", metavar="TEXT", help="name of its version")
    group.add_argument(
        "--served-model-name", default="", metavar="NAME", help="name in the API; the folder's"
    )
    group.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104
    group.add_argument("--port", type=_whole(0), default=ports.ENGINE_PORT, help="0 picks one")
    group.add_argument(
        "--report-socket", type=Path, metavar="PATH", help="socket of the sidecar, if there is one"
    )


def _add_engine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", **_one_of(Device, Device.CPU), help="where the model runs")
    group.add_argument(
        "--execution", **_one_of(Execution, Execution.GRAPHS), help="Eager switches graphs off"
    )
    group.add_argument("--dtype", **_one_of(DType, DType.AUTO), help="auto is float32 on a CPU")
    group.add_argument("--quantization", **_one_of(Quantization, Quantization.NONE), help=" ")
    group.add_argument("--attention-backend", default="auto", metavar="NAME", help=" ")
    for flag, default, text in (
        ("--tensor-parallel-size", 1, "GPUs that share the model"),
        ("--max-model-length", 2048, "longest prompt plus answer, in tokens"),
        ("--max-batch-size", 8, "most sequences in one step"),
        ("--max-batch-tokens", 256, "most prompt tokens in one prefill chunk"),
        ("--kv-block-size", 16, "positions in one KV block"),
    ):
        group.add_argument(flag, type=_whole(1), default=default, metavar="N", help=text)
    group.add_argument(
        "--kv-cache-memory",
        type=parse_quantity,
        default=512 << 20,
        metavar="SIZE",
        help="memory of all KV blocks, such as 512Mi",
    )
    group.add_argument(
        "--speculative-method", **_one_of(SpeculativeMethod, SpeculativeMethod.NONE), help=" "
    )
    group.add_argument("--speculative-tokens", type=_whole(1), default=4, metavar="N", help=" ")


def _add_buckets(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--buckets-preset",
        **_one_of(BucketPreset, BucketPreset.NONE),
        help="lists derived from the limits",
    )
    for kind, unit in (("decode", "sequences"), ("prefill", "tokens"), ("verify", "sequences")):
        for suffix, when in (("", "captured before ready"), ("-lazy", "captured later")):
            group.add_argument(
                f"--{kind}-buckets{suffix}",
                type=_sizes,
                default=(),
                metavar="N,N",
                help=f"{unit} of {kind} steps, {when}",
            )


def _add_warmup(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--warmup-policy", **_one_of(WarmupPolicy, WarmupPolicy.REQUIRE_EAGER), help=" "
    )
    group.add_argument(
        "--warmup-order", **_one_of(WarmupOrder, WarmupOrder.LARGEST_FIRST), help=" "
    )
    group.add_argument(
        "--on-capture-failure", **_one_of(OnCaptureFailure, OnCaptureFailure.FALLBACK), help=" "
    )
    group.add_argument("--lazy-capture", type=_boolean, default=True, metavar="true|false")
    group.add_argument(
        "--lazy-capture-busy-percent",
        type=_whole(1, 100),
        default=10,
        metavar="N",
        help="share of time that lazy capture may take beside traffic",
    )
    group.add_argument(
        "--known-answer-check",
        type=_boolean,
        default=True,
        metavar="true|false",
        help="compare graphs with eager execution before ready",
    )
    group.add_argument(
        "--cache-directory", type=Path, metavar="DIR", help="graph cache; none without it"
    )
    group.add_argument("--cache-mode", **_one_of(CacheMode, CacheMode.READ_WRITE), help=" ")
    group.add_argument(
        "--cache-keep-entries", type=_whole(0), default=3, metavar="N", help="unused entries kept"
    )


_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS = {
    **{"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12},
    **{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40},
}


def parse_quantity(text: str) -> int:
    """Bytes of a Kubernetes quantity such as 512Mi."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a quantity such as 512Mi")
    return int(float(match[1]) * _UNITS[match[2] or ""])


class _whole:  # noqa: N801 (used like argparse's own type functions)
    """A whole number within bounds."""

    def __init__(self, least: int, most: int | None = None) -> None:
        self._least, self._most = least, most

    def __call__(self, text: str) -> int:
        bounds = f"from {self._least}" + (f" to {self._most}" if self._most is not None else "")
        message = f"{text!r} is not a whole number {bounds}"
        if not re.fullmatch(r"\d{1,15}", text):
            raise argparse.ArgumentTypeError(message)
        value = int(text)
        if value < self._least or (self._most is not None and value > self._most):
            raise argparse.ArgumentTypeError(message)
        return value


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(_whole(1)(part.strip()) for part in text.split(",") if part.strip())
    if list(sizes) != sorted(set(sizes)):
        raise argparse.ArgumentTypeError(f"{text!r}: sizes must ascend and not repeat")
    return sizes


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def _one_of(values: type[StrEnum], default: StrEnum) -> dict[str, object]:
    return {"choices": [value.value for value in values], "default": default.value}
