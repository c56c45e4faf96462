"""Decode steps as one graph, as graphs between launches of attention, and launch by launch.

    python -m benchmarks.graph_modes [--shape 1b] [--json FILE]

The same launches three times, on a GPU, without a server: what differs is how the host hands them
over. For each mode and for decode steps of 1, 8 and 64 sequences at POSITION positions:
`launches` are calls of the driver that put work into the stream, `cpu_us` is the host's processor
time for them, `step_ms` is the time of a step among many, each prepared while the one before it
runs, and `weights_tb_s` the weights that a step reads over that time. Medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cuda

from benchmarks import checkpoints, results
from warmgraph_api.report import StepKind
from warmgraph_api.resource import Device
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.backends.cuda.pieces import PiecewisePlayer
from warmgraph_engine.backends.cuda.player import CudaPlayer
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import Step, StepDraw, StepRow

BATCHES = (1, 8, 64)
POSITION = 140
BLOCK = 16
BLOCKS = 1 + POSITION // BLOCK
"""Of each sequence."""
STEPS = 100
WARMUPS = 5


def settings(dtype: str) -> BackendSettings:
    return BackendSettings(
        dtype=dtype,
        block_size=BLOCK,
        kv_cache_bytes=2 << 30,
        max_model_length=2048,
        max_batch_size=max(BATCHES),
        max_batch_tokens=512,
    )


def decode(batch: int) -> Step:
    rows = [
        StepRow(
            token_ids=[7 * row + 5],
            slot=row,
            start_position=POSITION,
            block_table=[1 + row * BLOCKS + block for block in range(BLOCKS)],
            logit_rows=1,
            draw=StepDraw(),
        )
        for row in range(batch)
    ]
    return Step(kind=StepKind.DECODE, rows=rows)


class Mode:
    """Steps of one shape, handed over in one way."""

    def __init__(self, backend: CudaBackend, step: Step, run: Callable[[], None]) -> None:
        self._backend, self._step, self._run = backend, step, run
        self._shape = shape_of(step)
        for _ in range(WARMUPS):
            self._hand_over()
        backend.drawn()

    def launches(self) -> int:
        with _launch_calls() as calls:
            self._hand_over()
        self._backend.drawn()
        return len(calls)

    def cpu_seconds(self) -> float:
        """To hand over a step to a device that is idle."""
        self._backend.buffers.fill(self._step, self._shape)
        began = time.thread_time()
        self._run()
        seconds = time.thread_time() - began
        self._backend.drawn()
        return seconds

    def step_seconds(self) -> float:
        began = time.perf_counter()
        for _ in range(STEPS):
            self._hand_over()
        self._backend.drawn()
        return (time.perf_counter() - began) / STEPS

    def _hand_over(self) -> None:
        self._backend.buffers.fill(self._step, self._shape)
        self._run()


@contextmanager
def _launch_calls() -> Iterator[list[str]]:
    """The calls of the driver that put work into a stream, by name."""
    made: list[str] = []
    names = ("cuLaunchKernelEx", "cuGraphLaunch")

    def counted(name: str, call: Any) -> Callable[..., Any]:
        def launch(*arguments: Any) -> Any:
            made.append(name)
            return call(*arguments)

        return launch

    calls = {name: getattr(cuda, name) for name in names}
    for name, call in calls.items():
        setattr(cuda, name, counted(name, call))
    try:
        yield made
    finally:
        for name, call in calls.items():
            setattr(cuda, name, call)


def modes(backend: CudaBackend, step: Step) -> dict[str, Mode]:
    shape = shape_of(step)
    image = backend.recorder.record(shape.tokens, shape)
    player = backend.player
    assert isinstance(player, CudaPlayer)
    runs: dict[str, Callable[[], None]] = {
        "full": player.load(image).replay,
        "piecewise": PiecewisePlayer(player).load(image).replay,
        "eager": lambda: backend.run_eagerly(shape),
    }
    return {name: Mode(backend, step, run) for name, run in runs.items()}


def measure(backend: CudaBackend, rounds: int) -> dict[str, float]:
    regions = [region for region in backend.layout if region.group == "weights"]
    weights = sum(region.bytes for region in regions if region.name != "weights.embedding")
    figures = {}
    for batch in BATCHES:
        compared = modes(backend, decode(batch))
        steps: dict[str, list[float]] = {name: [] for name in compared}
        for _ in range(rounds):  # in turns
            for name, mode in compared.items():
                steps[name].append(mode.step_seconds())
        for name, mode in compared.items():
            cpu = statistics.median(mode.cpu_seconds() for _ in range(STEPS))
            seconds = statistics.median(steps[name])
            figures[f"{name}.launches.{batch}"] = float(mode.launches())
            figures[f"{name}.cpu_us.{batch}"] = round(1e6 * cpu, 1)
            figures[f"{name}.step_ms.{batch}"] = round(1e3 * seconds, 3)
            figures[f"{name}.weights_tb_s.{batch}"] = round(weights / seconds / 1e12, 2)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=list(checkpoints.SHAPES), default="1b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.write(Path(folder), arguments.shape)
        checkpoint = Checkpoint(Path(folder))
        backend = CudaBackend(checkpoint, settings(checkpoint.config.dtype))
        figures = measure(backend, arguments.rounds)
    for name, figure in figures.items():
        print(f"{name:<28} {figure:>10}", file=sys.stderr)
    if arguments.json is not None:
        results.write(arguments.json, figures, device=Device.CUDA)


if __name__ == "__main__":
    main()
