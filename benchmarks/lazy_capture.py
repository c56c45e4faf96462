"""How a stream feels the capture of rare buckets beside it.

    python -m benchmarks.lazy_capture [--device cpu] [--shape 1b] [--json FILE]

An engine with nothing stored captures one decode bucket before it is ready and many others later.
One stream of tokens follows another while they are captured, and as many again when all are;
`p99_ratio` is the 99th percentile of the gaps between tokens of the first over that of the second.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import checkpoints, results
from benchmarks.client import load
from benchmarks.served import Engine
from warmgraph_api.report import BucketState
from warmgraph_api.resource import Device

FILES = {Device.CUDA: "lazy", Device.CPU: "lazy_cpu"}
"""A CPU's figures never replace a GPU's."""

LAZY = 31
"""Decode buckets 2 to 32."""

FLAGS = (
    "--max-model-length=2048",
    "--max-batch-size=32",
    "--max-batch-tokens=256",
    "--kv-cache-memory=1Gi",
    "--decode-buckets=1",
    f"--decode-buckets-lazy={','.join(map(str, range(2, 2 + LAZY)))}",
    "--prefill-buckets=16",
    "--lazy-capture=true",
)


def pending(engine: Engine) -> int:
    return sum(bucket.state is BucketState.PENDING for bucket in engine.report.buckets)


def measure(engine: Engine, tokens: int) -> dict[str, float]:
    """Raises RuntimeError if no capture fell into the first stream."""
    waiting = pending(engine)
    if not waiting:
        raise RuntimeError("every bucket was captured before the stream began")
    during: list[float] = []
    while pending(engine):
        during += asyncio.run(load(1, tokens))[0]
    steady: list[float] = []
    while len(steady) < len(during):
        steady += asyncio.run(load(1, tokens))[0]
    figures = {
        "captured_beside": float(waiting),
        "p50_ms": 1e3 * statistics.median(steady),
        "p99_ms": 1e3 * results.percentile(steady, 99),
        "p99_lazy_ms": 1e3 * results.percentile(during, 99),
        "max_lazy_ms": 1e3 * max(during),
    }
    figures["p99_ratio"] = figures["p99_lazy_ms"] / figures["p99_ms"]
    return {name: round(figure, 3) for name, figure in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CUDA)
    parser.add_argument("--shape", choices=list(checkpoints.SHAPES), default="1b")
    parser.add_argument("--tokens", type=int, default=1000, help="of each stream")
    results.add_output(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, work = Path(folder) / "model", Path(folder)
        checkpoints.write(model, arguments.shape)
        with Engine(model, work, (*FLAGS, f"--device={arguments.device}")) as engine:
            figures = measure(engine, arguments.tokens)
    for name, figure in figures.items():
        print(f"{name:<16} {figure:>10}", file=sys.stderr)
    path = results.output(arguments, FILES[arguments.device])
    results.write(path, figures, device=arguments.device)


if __name__ == "__main__":
    main()
