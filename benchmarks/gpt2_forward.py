"""One forward pass of GPT-2's shape, replayed from a graph and launched operation by operation.

    python -m benchmarks.gpt2_forward [--device cpu] [--json FILE]

Batch 1, 2, 4 by sequence 64, 256, 1024; random weights, fp16 on a GPU and float32 on a CPU; each
figure is the median of the repetitions in milliseconds, from the inputs in the static buffers to
the last token's logits of each sequence in the host's memory. Graph and eager take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import checkpoints, results
from warmgraph_api.report import StepKind
from warmgraph_api.resource import Device
from warmgraph_engine.backends.base import Backend
from warmgraph_engine.backends.open import open_backend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import Step, StepRow

FILES = {Device.CUDA: "gpt2", Device.CPU: "gpt2_cpu"}
"""A CPU's figures never replace a GPU's."""

BATCHES = (1, 2, 4)
LENGTHS = (64, 256, 1024)
BLOCK = 16
WARMUPS = 5


def settings(device: Device) -> BackendSettings:
    return BackendSettings(
        dtype="float16" if device is Device.CUDA else "float32",
        block_size=BLOCK,
        kv_cache_bytes=1 << 30,
        max_model_length=max(LENGTHS),
        max_batch_size=max(BATCHES),
        max_batch_tokens=max(BATCHES) * max(LENGTHS),
    )


def prompts(batch: int, length: int) -> Step:
    blocks = -(-length // BLOCK)
    rows = [
        StepRow(
            token_ids=[(31 * row + 7 * token) % 50257 for token in range(length)],
            slot=row,
            start_position=0,
            block_table=BlockTable(1 + row * blocks + block for block in range(blocks)),
            logit_rows=1,
        )
        for row in range(batch)
    ]
    return Step(kind=StepKind.PREFILL, rows=rows)


def forward(backend: Backend, step: Step, repetitions: int) -> dict[str, float]:
    """Median milliseconds of `eager` and `graph`."""
    shape = shape_of(step)
    backend.buffers.fill(step, shape)
    graph = backend.player.load(backend.recorder.record(shape.tokens, shape))
    ways: dict[str, Callable[[], None]] = {
        "eager": lambda: backend.run_eagerly(shape),
        "graph": graph.replay,
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(WARMUPS + repetitions):
        for way, run in ways.items():
            backend.buffers.fill(step, shape)  # every run takes the next set of buffers
            began = time.perf_counter()
            run()
            backend.logits(shape.logit_rows)
            if repetition >= WARMUPS:
                seconds[way].append(time.perf_counter() - began)
    return {way: round(1e3 * statistics.median(values), 3) for way, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CUDA)
    parser.add_argument("--repetitions", type=int, default=100)
    results.add_output(parser)
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.write(Path(folder), "gpt2")
        backend, _ = open_backend(
            arguments.device,
            Checkpoint(Path(folder)),
            settings(arguments.device),
            progress=lambda: None,
        )
        backend.finish_loading()
        for batch in BATCHES:
            for length in LENGTHS:
                medians = forward(backend, prompts(batch, length), arguments.repetitions)
                figures |= {f"{way}_ms.{batch}.{length}": ms for way, ms in medians.items()}
                ratio = medians["eager"] / medians["graph"]
                line = "  ".join(f"{way} {ms:>9.3f} ms" for way, ms in medians.items())
                print(f"{batch} x {length:<5} {line}  {ratio:5.2f}x", file=sys.stderr, flush=True)
    path = results.output(arguments, FILES[arguments.device])
    results.write(path, figures, device=arguments.device)


if __name__ == "__main__":
    main()
