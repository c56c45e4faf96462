"""How much of its time a GPU waits for the host between two steps, while there are requests.

    python -m benchmarks.idle_gap [--shape 1b] [--json FILE]

An engine streams to 1 and to 64 readers at once, through HTTP. `gap_share.N` is the time between
steps over all time, as the engine's own metrics count it by events in the GPU's stream: each
step's begins with its first kernel and ends with its last. So what the host takes within a step,
between the launches of its inputs and of its graph, is not in it; it shows where `step_ms.N`, the
gap included, is longer than `full.step_ms.N` of graph_modes.py. Figures are medians of rounds.
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
from benchmarks.served import Engine, Window
from warmgraph_api.resource import Device

STREAMS = (1, 64)
FLAGS = (
    "--device=cuda",
    "--max-model-length=4096",
    "--max-batch-size=64",
    "--max-batch-tokens=512",
    "--kv-cache-memory=8Gi",
    "--decode-buckets=1,2,4,8,16,32,48,64",
    "--prefill-buckets=16,64,256,512",
)


def measure(engine: Engine, *, tokens: int, rounds: int) -> dict[str, float]:
    figures = {}
    for streams in STREAMS:
        asyncio.run(load(streams, tokens))
        shares, steps = [], []
        for _ in range(rounds):
            before = engine.scrape()
            asyncio.run(load(streams, tokens))
            window = Window(before, engine.scrape())
            shares.append(window.gap_share)
            seconds = window.total("warmgraph_gpu_busy_seconds_total")
            seconds += window.total("warmgraph_gpu_idle_seconds_total")
            steps.append(1e3 * seconds / window.total("warmgraph_steps_total"))
        figures[f"gap_share.{streams}"] = round(statistics.median(shares), 4)
        figures[f"step_ms.{streams}"] = round(statistics.median(steps), 3)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=list(checkpoints.SHAPES), default="1b")
    parser.add_argument("--tokens", type=int, default=1000, help="of each stream")
    parser.add_argument("--rounds", type=int, default=5)
    results.add_output(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, work = Path(folder) / "model", Path(folder)
        checkpoints.write(model, arguments.shape)
        with Engine(model, work, FLAGS) as engine:
            engine.wait_until_stored()
            figures = measure(engine, tokens=arguments.tokens, rounds=arguments.rounds)
    for name, figure in figures.items():
        print(f"{name:<16} {figure:>10}", file=sys.stderr)
    path = results.output(arguments, "idle")
    results.write(path, figures, device=Device.CUDA)


if __name__ == "__main__":
    main()
