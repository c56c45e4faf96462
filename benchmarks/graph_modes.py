"""Decode steps as one graph, as graphs between launches of attention, and launch by launch.

    python -m benchmarks.graph_modes [--shape 1b] [--json FILE]

The same launches three times, on a GPU, without a server: what differs is how the host hands them
over. For each mode and for decode steps of 1, 8 and 64 sequences at POSITION positions:
`launches` are calls of the driver that put work into the stream, `cpu_us` is the host's processor
time for them, `step_ms` is the time of a step among many, each prepared while the one before it
runs, and `weights_tb_s` the weights that a step reads over that time; medians. `load_ms` is what it
takes to make a bucket's graphs from its image, with `instantiate_ms` and `upload_ms` in it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cuda

from benchmarks import checkpoints, results
from warmgraph_api.report import StepKind
from warmgraph_api.resource import Device
from warmgraph_engine.backends.base import GraphImage, Player
from warmgraph_engine.backends.cuda import quick
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.backends.cuda.pieces import PiecewisePlayer
from warmgraph_engine.backends.cuda.player import CudaPlayer
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import Step, StepDraw, StepRow

BATCHES = (1, 8, 64)
POSITION = 140
BLOCK = 16
BLOCKS = 1 + POSITION // BLOCK
"""Of each sequence."""
STEPS = 100
WARMUPS = 5
LOADS = 5


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
            block_table=BlockTable(1 + row * BLOCKS + block for block in range(BLOCKS)),
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
        with driver_calls("cuLaunchKernelEx", "cuGraphLaunch") as calls:
            self._hand_over()
        self._backend.drawn()
        return sum(map(len, calls.values()))

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
def driver_calls(*names: str) -> Iterator[dict[str, list[float]]]:
    """The seconds of each call of these functions of the driver, by name: of those that the engine
    makes through its bindings, and of those that it makes itself."""
    made: dict[str, list[float]] = {name: [] for name in names}

    def timed(name: str, function: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments)
            made[name].append(time.perf_counter() - began)
            return result

        return call

    functions = [
        (module, name, getattr(module, name))
        for module in (cuda, quick)
        for name in names
        if hasattr(module, name)
    ]
    for module, name, function in functions:
        setattr(module, name, timed(name, function))
    try:
        yield made
    finally:
        for module, name, function in functions:
            setattr(module, name, function)


def load_milliseconds(player: Player, image: GraphImage) -> dict[str, float]:
    """To make what replays an image whose kernels are loaded: all of it, and of that the driver's
    instantiation and upload of graphs."""
    parts = {"instantiate_ms": "cuGraphInstantiate", "upload_ms": "cuGraphUpload"}
    loads: list[float] = []
    with driver_calls(*parts.values()) as calls:
        for _ in range(LOADS):
            began = time.perf_counter()
            player.load(image)
            loads.append(time.perf_counter() - began)
    found = {"load_ms": statistics.median(loads)}
    found |= {name: sum(calls[function]) / LOADS for name, function in parts.items()}
    return {name: round(1e3 * seconds, 3) for name, seconds in found.items()}


def measure(backend: CudaBackend, rounds: int) -> dict[str, float]:
    full = backend.player
    assert isinstance(full, CudaPlayer)
    players: dict[str, Player] = {"full": full, "piecewise": PiecewisePlayer(full)}
    figures: dict[str, float] = {}
    for batch in BATCHES:
        step = decode(batch)
        shape = shape_of(step)
        image = backend.recorder.record(shape.tokens, shape)
        graphs = {name: player.load(image) for name, player in players.items()}
        runs = {name: graph.replay for name, graph in graphs.items()}
        runs["eager"] = partial(backend.run_eagerly, shape)
        found = compare({name: Mode(backend, step, run) for name, run in runs.items()}, rounds)
        for name, player in players.items():
            found[name] |= load_milliseconds(player, image)
        for name, values in found.items():
            values["weights_tb_s"] = round(_weights(backend) / values["step_ms"] / 1e9, 2)
            figures |= {f"{name}.{figure}.{batch}": value for figure, value in values.items()}
    return figures


def compare(modes: dict[str, Mode], rounds: int) -> dict[str, dict[str, float]]:
    """By mode, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in modes}
    for _ in range(rounds):
        for name, mode in modes.items():
            seconds[name].append(mode.step_seconds())
    return {
        name: {
            "launches": float(mode.launches()),
            "cpu_us": round(1e6 * statistics.median(mode.cpu_seconds() for _ in range(STEPS)), 1),
            "step_ms": round(1e3 * statistics.median(seconds[name]), 3),
        }
        for name, mode in modes.items()
    }


def _weights(backend: CudaBackend) -> int:
    """Bytes of the weights that every step reads."""
    regions = [region for region in backend.layout if region.group == "weights"]
    return sum(region.bytes for region in regions if region.name != "weights.embedding")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=list(checkpoints.SHAPES), default="1b")
    parser.add_argument("--rounds", type=int, default=5)
    results.add_output(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.write(Path(folder), arguments.shape)
        checkpoint = Checkpoint(Path(folder))
        backend = CudaBackend(checkpoint, settings(checkpoint.config.dtype))
        backend.finish_loading()
        figures = measure(backend, arguments.rounds)
    for name, figure in figures.items():
        print(f"{name:<28} {figure:>10}", file=sys.stderr)
    path = results.output(arguments, "graph_modes")
    results.write(path, figures, device=Device.CUDA)


if __name__ == "__main__":
    main()
