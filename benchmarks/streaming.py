"""What a streamed token costs the CPU: everything of the engine but the device, through HTTP.

    python -m benchmarks.streaming [--streams 64] [--tokens 256] [--step-ms 7] [--json FILE]

The device computes nothing: a step is over --step-ms after the one before it, and its tokens are
random. All else is the engine's own: server, detokenizer, loop, scheduler, sampler, and the writing
of steps into static buffers. Choose a step so long that every token still gets an event of its own
(--step-ms 0 shows how fast it gets when tokens share events). Figures are the best of the rounds,
since whatever else the machine does only adds to them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry

from benchmarks import results
from benchmarks.checkpoints import write_tokenizer
from warmgraph_api.report import Bucket, BucketMode, Stage, StepKind
from warmgraph_api.resource import Device
from warmgraph_engine.arena import ArenaLayout
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.buffers import BufferSizes, StaticBuffers
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.loop import EngineLoop
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.sampling.device import DeviceSampler
from warmgraph_engine.server.app import create_app, make_runner
from warmgraph_engine.server.service import Service
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Limits
from warmgraph_engine.tokenizer.text import TextModel

VOCABULARY = 32000
BUCKETS = (1, 2, 4, 8, 16, 32, 64)
LIMITS = Limits(
    vocabulary=VOCABULARY,
    block_size=16,
    blocks=64 * 256,
    max_model_length=4096,
    max_batch_size=max(BUCKETS),
    max_batch_tokens=512,
)
READ_SECONDS = 0.005
"""Pause of the client between two looks at its streams: woken by every event it would take more of
the machine than the engine does."""


class IdleDevice:
    """A backend, its player and its graphs in one, that only lets time pass."""

    limits = LIMITS
    layout = ArenaLayout()
    launches = driver_times = None
    tolerance = 0.0
    bytes = 0

    def __init__(self, step_seconds: float) -> None:
        sizes = BufferSizes(
            tokens=LIMITS.max_batch_tokens,
            sequences=LIMITS.max_batch_size,
            logit_rows=LIMITS.max_batch_tokens,
            table_width=LIMITS.max_model_length // LIMITS.block_size,
            vocabulary=1,
        )
        arrays = {name: np.zeros(shape, dtype) for name, dtype, shape in sizes.regions()}
        self.buffers = StaticBuffers(arrays, block_size=LIMITS.block_size)
        self.sampler = DeviceSampler(vocabulary=VOCABULARY)
        self.player = self.recorder = self
        self._step_seconds, self._over = step_seconds, 0.0
        self._random = np.random.default_rng(0)

    def record(self, size: int, shape: StepShape) -> GraphImage:
        return GraphImage(kind=shape.kind, size=size, document=b"")

    def prepare(self) -> None:
        pass

    def load(self, _image: GraphImage) -> IdleDevice:
        return self

    def replay(self) -> None:
        self._over = max(self._over, time.perf_counter()) + self._step_seconds

    def finish_loading(self) -> None:
        pass

    def run_eagerly(self, _shape: StepShape) -> None:
        self.replay()

    def result(self, _rows: int) -> IdleStep:
        tokens = self._random.integers(0, VOCABULARY, LIMITS.max_batch_size)
        return IdleStep(self._over, tokens.tolist())

    def logits(self, _rows: int) -> Any:
        raise NotImplementedError

    def timing(self) -> None:
        return None

    def drawn(self) -> None:
        raise NotImplementedError

    def forget_stored(self) -> bool:
        raise NotImplementedError

    def poison_logits(self, _rows: int) -> None:
        raise NotImplementedError

    def poison_kv(self, _blocks: int) -> None:
        raise NotImplementedError


class IdleStep:
    """Its tokens, at the time at which it is over."""

    def __init__(self, over: float, tokens: list[int]) -> None:
        self._over, self._tokens = over, tokens

    def drawn(self) -> Sequence[int]:
        left = self._over - time.perf_counter()
        if left > 0:
            time.sleep(left)
        return self._tokens

    def on_host(self, _rows: Sequence[int]) -> Any:
        raise NotImplementedError


async def serve(arguments: argparse.Namespace) -> dict[str, float]:
    device = IdleDevice(arguments.step_ms / 1e3)
    buckets = [Bucket(kind=StepKind.DECODE, size=n, mode=BucketMode.EAGER) for n in BUCKETS]
    graphs = GraphTable(device, buckets)
    for bucket in graphs.ids():
        graphs.capture(bucket)
    metrics = EngineMetrics(CollectorRegistry())
    executor = GraphExecutor(device, graphs, StepCounts())
    engine = EngineLoop(executor, device.sampler, metrics=metrics, on_fault=print)
    service = Service(model_name="m", stage=lambda: (Stage.SERVING, ""), metrics=metrics)
    runner = make_runner(create_app(service))
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0), backlog=arguments.streams)
    await web.SockSite(runner, listening).start()
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), VOCABULARY)
        service.attach(engine, TextModel.load(Path(folder), vocabulary=VOCABULARY))
    rounds = [
        await _round(listening.getsockname()[1], arguments.streams, arguments.tokens)
        for _ in range(arguments.rounds + 1)
    ][1:]
    await runner.cleanup()
    await service.close()
    best = {name: min(figures[name] for figures in rounds) for name in rounds[0]}
    best["tok_s"] = max(figures["tok_s"] for figures in rounds)
    return {name: round(figure, 2) for name, figure in best.items()}


async def _round(port: int, streams: int, tokens: int) -> dict[str, float]:
    process, thread = time.process_time(), time.thread_time()
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.streaming", "--client", str(port)),
        *("--streams", str(streams), "--tokens", str(tokens)),
        stdout=subprocess.PIPE,
    )
    output, _ = await client.communicate()
    process, thread = time.process_time() - process, time.thread_time() - thread
    got = json.loads(output)
    total = streams * tokens
    return {
        "tok_s": total / got["seconds"],
        "tokens_per_event": total / got["events"],
        "event_loop_us_per_token": 1e6 * thread / total,
        "engine_thread_us_per_token": 1e6 * (process - thread) / total,
        "cpu_us_per_token": 1e6 * process / total,
    }


def read_streams(port: int, streams: int, tokens: int) -> dict[str, float]:
    """The client, in a process of its own: open all streams, then read them to their ends."""
    request = {"model": "m", "prompt": "hello", "temperature": 0, "ignore_eos": True}
    body = json.dumps({**request, "max_tokens": tokens, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    selector = selectors.DefaultSelector()
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(streams)]
    ends = dict.fromkeys(connections, b"")
    began = time.perf_counter()
    for connection in connections:
        connection.sendall(head.encode() + body)
        selector.register(connection, selectors.EVENT_READ, connection)
    events = 0
    while selector.get_map():
        time.sleep(READ_SECONDS)
        for key, _ in selector.select(0):
            connection = key.data
            data = connection.recv(1 << 20)
            events += data.count(b"data: {")
            ends[connection] = (ends[connection] + data)[-5:]
            if not data or ends[connection] == b"0\r\n\r\n":
                selector.unregister(connection)
    return {"seconds": time.perf_counter() - began, "events": events}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256, help="of each stream")
    parser.add_argument("--step-ms", type=float, default=7.0)
    parser.add_argument("--rounds", type=int, default=5)
    results.add_output(parser)
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client is not None:
        print(json.dumps(read_streams(arguments.client, arguments.streams, arguments.tokens)))
        return
    figures = uvloop.run(serve(arguments))
    for name, figure in figures.items():
        print(f"{name:<28} {figure:>9}")
    path = results.output(arguments, "streaming")
    results.write(path, figures, device=Device.CPU, packages=("aiohttp", "uvloop"))


if __name__ == "__main__":
    main()
