"""Sums over two GPUs, by two processes: what each rank gets is compared on the host.

    python -m tests.gpu.reductions RANK HIDDEN ROUNDS FOLDER DESCRIPTOR

is one rank; check_reductions starts them.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from tests.engine.cuda.models import llama
from warmgraph_api.report import StepKind
from warmgraph_engine.arena import ArenaLayout
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.backends.cuda.compiler import Compiler
from warmgraph_engine.backends.cuda.driver import Device, check
from warmgraph_engine.backends.cuda.launch import Launch, Pointer
from warmgraph_engine.backends.cuda.launches import Launches
from warmgraph_engine.backends.cuda.layout import geometry, plan_peers
from warmgraph_engine.backends.cuda.memory import Addresses, DeviceArena, HostRegions
from warmgraph_engine.backends.cuda.peers import Attendance, PeerMemory
from warmgraph_engine.backends.cuda.player import CudaPlayer
from warmgraph_engine.backends.cuda.recorder import CudaRecorder
from warmgraph_engine.backends.cuda.turns import Results, Turns
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.models.shard import shard
from warmgraph_engine.shapes import StepShape

ROWS = 512
SIZES = (1, 8, 64, 200, ROWS)
TIMEOUT_SECONDS = 120.0


def check_reductions(folder: Path, *, hidden: int, rounds: int) -> None:
    """Run `rounds` replays of graphs of two sums each, in random order, on two ranks that are late
    for each other in turns; raise AssertionError where a result is wrong or differs."""
    ends = socket.socketpair()
    ranks = []
    for rank, end in enumerate(ends):
        numbers = map(str, (rank, hidden, rounds, folder, end.fileno()))
        command = [sys.executable, "-m", "tests.gpu.reductions", *numbers]
        ranks.append(subprocess.Popen(command, pass_fds=[end.fileno()]))
    for end in ends:
        end.close()
    assert [process.wait(5 * TIMEOUT_SECONDS) for process in ranks] == [0, 0]
    results = [np.load(folder / f"{rank}.npz") for rank in range(2)]
    own = [result["own"] for result in results]
    for name in results[0].files:
        if name == "own":
            continue
        assert np.array_equal(results[0][name], results[1][name]), name
    replayed = results[0]["replayed"]
    wanted = np.zeros((ROWS, hidden), np.float32)
    total = own[0] + own[1]
    for size in replayed:
        for _ in range(2):
            wanted[:size] += total[:size]
    assert np.allclose(results[0]["residual"], wanted, rtol=1e-5)


class Pair:
    """The Peers of two ranks with one socket between them: descriptors cross it both ways."""

    def __init__(self, rank: int, folder: Path, connection: socket.socket) -> None:
        self._rank, self._connection = rank, connection
        self.folder, self.timeout_seconds = folder, TIMEOUT_SECONDS

    def exchange(self, descriptor: int) -> list[int]:
        socket.send_fds(self._connection, [b"d"], [descriptor])
        _, (theirs,), _, _ = socket.recv_fds(self._connection, 1, 1)
        return [descriptor, theirs] if self._rank == 0 else [theirs, descriptor]


def main(rank: int, hidden: int, rounds: int, folder: Path, connection: socket.socket) -> None:
    options = BackendSettings(
        dtype="float32",
        block_size=16,
        kv_cache_bytes=1 << 20,
        max_model_length=64,
        max_batch_size=4,
        max_batch_tokens=ROWS,
        rank=rank,
        ranks=2,
    )
    config = shard(llama(hidden_size=hidden), 2)
    device = Device(rank)
    plan = ArenaLayout()
    plan.add("work.partial", "float32", (ROWS, hidden))
    plan.add("work.residual", "float32", (ROWS, hidden))
    plan.add("work.x", "float32", (ROWS, hidden))
    plan.add("weights.norm", "float32", (hidden,))
    plan.add("buffers.logit_rows", "int64", (ROWS,))
    plan.add("work.places", "int64", (2, 2))
    plan.add("work.reductions", "int64", (3,))
    arena = DeviceArena(device, plan)
    outcome = ArenaLayout()
    outcome.add("results.drawn", "int32", (2, 4))
    outcome.add("results.lost", "int32", (1,))
    results = HostRegions(device, outcome)
    peers = Pair(rank, folder, connection)
    shared = PeerMemory(device, plan_peers(config, options), peers, rank)
    addresses = Addresses(arena, results, shared)
    device.synchronize()
    own = np.random.default_rng(rank).standard_normal((ROWS, hidden)).astype(np.float32)
    copy_in(addresses["work.partial"], own)
    copy_in(addresses["weights.norm"], np.ones(hidden, np.float32))
    copy_in(addresses["work.places"], shared.addresses("peers.inbox", "peers.flags"))
    sets = [Results(drawn, drawn) for drawn in results.array("results.drawn")]
    turns = Turns(device, sets, Attendance(results.array("results.lost")))
    dtypes = {name: region.dtype for name, region in addresses.regions.items()}
    player = CudaPlayer(device, [addresses, addresses], turns)

    def program(shape: StepShape) -> list[Launch]:
        add_norm = Launches(config, geometry(options), shape).add_norm("norm", "layers.0.down")
        assert isinstance(add_norm.arguments["inbox_ptr"], Pointer)
        return [add_norm, add_norm]

    recorder = CudaRecorder(Compiler(device.capability, dtypes), addresses.regions, program)
    graphs = {}
    for size in SIZES:
        shape = StepShape(kind=StepKind.PREFILL, tokens=size, sequences=1, logit_rows=1)
        image: GraphImage = recorder.record(size, shape)
        graphs[size] = player.load(image)
    chance = random.Random(7)
    replayed = [chance.choice(SIZES) for _ in range(rounds)]
    for number, size in enumerate(replayed):
        if number % 50 == 25 * rank:
            time.sleep(0.01)  # the other goes ahead, as far as it can
        graphs[size].replay()
        if number % 8 == 0:
            turns.last.read()  # also raises if a rank did not come
    turns.last.read()
    np.savez(
        folder / f"{rank}.npz",
        own=own,
        residual=copy_out(addresses["work.residual"], (ROWS, hidden)),
        normed=copy_out(addresses["work.x"], (min(SIZES), hidden)),
        replayed=np.array(replayed),
    )


def copy_in(address: int, values: NDArray) -> None:
    check(cuda.cuMemcpyHtoD(address, values.ctypes.data, values.nbytes))


def copy_out(address: int, shape: tuple[int, ...]) -> NDArray:
    values = np.empty(shape, np.float32)
    check(cuda.cuMemcpyDtoH(values.ctypes.data, address, values.nbytes))
    return values


if __name__ == "__main__":
    number, width, count, where, file = sys.argv[1:]
    main(int(number), int(width), int(count), Path(where), socket.socket(fileno=int(file)))
