"""The flags of `warmgraph-engine` and the types of their values."""

from __future__ import annotations

import argparse
import re
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from warmgraph_api import ports
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
from warmgraph_engine import kv
from warmgraph_engine.graph_mode import GraphMode
from warmgraph_engine.store.policy import User


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
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
    group.add_argument(
        "--port", type=_whole(0, 65535), default=ports.ENGINE_PORT, help="0 picks one"
    )
    group.add_argument(
        "--report-socket", type=Path, metavar="PATH", help="socket of the sidecar, if there is one"
    )


def _add_engine(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--device", choices=_values(Device), default=Device.CPU.value, help="where the model runs"
    )
    group.add_argument(
        "--execution",
        choices=_values(Execution),
        default=Execution.GRAPHS.value,
        help="Eager switches graphs off",
    )
    group.add_argument(
        "--graph-mode",
        choices=_values(GraphMode),
        default=GraphMode.FULL.value,
        help="Piecewise launches attention between graphs",
    )
    group.add_argument(
        "--dtype", choices=_values(DType), default=DType.AUTO.value, help="auto is float32 on a CPU"
    )
    group.add_argument(
        "--quantization",
        choices=_values(Quantization),
        default=Quantization.NONE.value,
        help="of the projections' weights, done while they load",
    )
    group.add_argument(
        "--attention-backend", default="auto", metavar="NAME", help="kernels; auto picks by device"
    )
    for flag, least, default, text in (
        ("--tensor-parallel-size", 1, 1, "GPUs that share the model"),
        ("--rank-timeout-seconds", 1, 60, "how long one of them may keep the others waiting"),
        ("--max-model-length", 1, 2048, "longest prompt plus answer, in tokens"),
        ("--max-batch-size", 1, 8, "most sequences in one step"),
        ("--max-batch-tokens", 1, 256, "most prompt tokens in one prefill chunk"),
        ("--kv-block-size", kv.MIN_BLOCK_SIZE, 16, "positions in one KV block"),
    ):
        group.add_argument(flag, type=_whole(least), default=default, metavar="N", help=text)
    group.add_argument(
        "--kv-cache-memory",
        type=parse_quantity,
        default=512 << 20,
        metavar="SIZE",
        help="memory of all KV blocks, such as 512Mi",
    )
    group.add_argument(
        "--speculative-method",
        choices=_values(SpeculativeMethod),
        default=SpeculativeMethod.NONE.value,
        help="where draft tokens come from",
    )
    group.add_argument(
        "--speculative-tokens", type=_whole(1), default=4, metavar="N", help="draft tokens per step"
    )


def _add_buckets(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--buckets-preset",
        choices=_values(BucketPreset),
        default=BucketPreset.NONE.value,
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
        "--warmup-policy",
        choices=_values(WarmupPolicy),
        default=WarmupPolicy.REQUIRE_EAGER.value,
        help="what readiness waits for",
    )
    group.add_argument(
        "--warmup-order",
        choices=_values(WarmupOrder),
        default=WarmupOrder.LARGEST_FIRST.value,
        help="which buckets are captured first",
    )
    group.add_argument(
        "--on-capture-failure",
        choices=_values(OnCaptureFailure),
        default=OnCaptureFailure.FALLBACK.value,
        help="Fail ends the start, Fallback runs the bucket without a graph",
    )
    group.add_argument(
        "--lazy-capture",
        type=_boolean,
        default=True,
        metavar="true|false",
        help="capture lazy buckets",
    )
    group.add_argument(
        "--lazy-capture-busy-percent",
        type=_whole(1, 100),
        default=2,
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
    group.add_argument(
        "--cache-mode",
        choices=_values(CacheMode),
        default=CacheMode.READ_WRITE.value,
        help="what may be done with the graph cache",
    )
    group.add_argument(
        "--cache-keep-revisions",
        type=_whole(0),
        default=3,
        metavar="N",
        help="earlier revisions of a deployment whose graphs are kept",
    )
    group.add_argument(
        "--cache-max-size",
        type=parse_quantity,
        default="1Gi",
        metavar="SIZE",
        help="of all entries; beyond it, unused ones go",
    )
    group.add_argument(
        "--cache-user",
        type=_user,
        metavar="OWNER@REVISION",
        help="revision that entries are kept for; the key's own without it",
    )


_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
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


def _user(text: str) -> User:
    try:
        return User.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(_whole(1)(part.strip()) for part in text.split(",") if part.strip())
    if list(sizes) != sorted(set(sizes)):
        raise argparse.ArgumentTypeError(f"{text!r}: sizes must ascend and not repeat")
    return sizes


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def _values(values: type[StrEnum]) -> list[str]:
    return [value.value for value in values]
