"""A model in a GPU's memory, ready to run steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_engine.backends import settings as common
from warmgraph_engine.backends.base import Player
from warmgraph_engine.backends.cuda.compiler import Compiler
from warmgraph_engine.backends.cuda.driver import CudaError, Device, check
from warmgraph_engine.backends.cuda.inputs import InputBuffers
from warmgraph_engine.backends.cuda.layout import (
    HOST_SETS,
    REDUCE_PROGRAMS,
    geometry,
    plan_device,
    plan_host,
    plan_peers,
    plan_results,
)
from warmgraph_engine.backends.cuda.loader import WeightLoading, plan
from warmgraph_engine.backends.cuda.logits import DeviceLogits, LogitRows
from warmgraph_engine.backends.cuda.memory import Addresses, DeviceArena, HostRegions
from warmgraph_engine.backends.cuda.peers import Attendance, PeerMemory
from warmgraph_engine.backends.cuda.pieces import PiecewisePlayer
from warmgraph_engine.backends.cuda.player import CudaLaunches, CudaPlayer
from warmgraph_engine.backends.cuda.program import step_program, usual_shapes
from warmgraph_engine.backends.cuda.recorder import CudaRecorder
from warmgraph_engine.backends.cuda.slots import DeviceSlotRows
from warmgraph_engine.backends.cuda.turns import Results, Turns
from warmgraph_engine.backends.peers import Peers
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.graph_mode import GraphMode
from warmgraph_engine.models.config import ModelConfig, ModelError
from warmgraph_engine.models.rope import rope_tables
from warmgraph_engine.models.shard import shard
from warmgraph_engine.models.weights import weight_specs
from warmgraph_engine.sampling.device import DeviceSampler
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import StepTiming

OLDEST_CAPABILITY = 90
"""Hopper: the kernels use its programmatic dependent launch."""

HEAD_DIMS = (16, 32, 64, 128, 256)
"""What the matrix instructions take as they are: powers of two from 16 up."""

EAGER_SHAPES = 256
"""Shapes of eager steps kept ready; each is some hundred small objects."""


class CudaBackend:
    """Allocates the arena, and has the weights on their way there. Raises ModelError."""

    tolerance = 0.0
    """Graphs and eager execution make the same launches (decision 0009)."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: BackendSettings,
        *,
        progress: Callable[[], None] = lambda: None,
        peers: Peers | None = None,
    ) -> None:
        """Of several ranks each needs its `peers`, and all are made at the same time."""
        config = shard(checkpoint.config, settings.ranks)
        _check_model(config)
        specs = weight_specs(config, checkpoint.tensors.keys())
        self.limits = common.limits(config, settings)
        self.layout = plan_device(config, settings, specs)
        self._device = device = _open_device(settings.rank)
        arena = DeviceArena(device, self.layout)
        results = HostRegions(device, plan_results(settings))
        hosts = [HostRegions(device, plan_host(config, settings)) for _ in range(HOST_SETS)]
        shared = [] if peers is None else [_share_memory(device, config, settings, peers)]
        sets = [Addresses(arena, results, host, *shared) for host in hosts]
        self._addresses = addresses = sets[0]
        device.synchronize()  # the arena is zeroed before anything is loaded into it
        for memory in shared:
            places = memory.addresses("peers.inbox", "peers.flags")
            check(cuda.cuMemcpyHtoD(addresses["work.places"], places.ctypes.data, places.nbytes))
        attendance = Attendance(results.array("results.lost") if shared else None)
        pieces = plan(
            checkpoint,
            specs,
            addresses,
            settings.dtype,
            rank=settings.rank,
            ranks=settings.ranks,
        )
        self._weights = WeightLoading(device, pieces, progress=progress)
        if config.rope is not None:
            half = config.head_dim // 2
            cos, sin = rope_tables(config.rope, config.head_dim, settings.max_model_length)
            for name, table in (("cos", cos), ("sin", sin)):
                # The second half of the columns holds the angles without the minus sign.
                numbers = np.ascontiguousarray(table[:, half:], dtype=np.float32)
                address = addresses[f"weights.rope.{name}"]
                check(cuda.cuMemcpyHtoD(address, numbers.ctypes.data, numbers.nbytes))
        brought = zip(results.array("results.drawn"), results.array("results.scores"), strict=True)
        self._turns = Turns(device, [Results(*arrays) for arrays in brought], attendance)
        arrays = [
            {region.name.partition(".")[2]: host.array(region.name) for region in host.layout}
            for host in hosts
        ]
        slot_rows = DeviceSlotRows(device, addresses, vocabulary=config.vocabulary)
        self.buffers = InputBuffers(
            arrays, self._turns.claim, slot_rows, block_size=settings.block_size
        )
        self.sampler = DeviceSampler(vocabulary=config.vocabulary)
        dtypes = {name: region.dtype for name, region in addresses.regions.items()}
        self._compiler = compiler = Compiler(device.capability, dtypes)
        self._launcher = CudaPlayer(device, sets, self._turns, on_kernel=compiler.learn)
        piecewise = settings.graph_mode is GraphMode.PIECEWISE
        self.player: Player = PiecewisePlayer(self._launcher) if piecewise else self._launcher
        program = partial(step_program, config, geometry(settings))
        self.recorder = CudaRecorder(compiler, addresses.regions, program, usual_shapes(settings))
        self._logits_address = addresses["buffers.logits"]
        self._logit_rows = LogitRows(
            device,
            self._logits_address,
            (settings.max_batch_size, config.vocabulary),
            attendance,
        )
        self._eager: dict[StepShape, CudaLaunches] = {}

    @property
    def allocations(self) -> int:
        """Of device and pinned memory, so far."""
        return self._device.allocations

    @property
    def launches(self) -> int:
        return self._device.launches

    def finish_loading(self) -> None:
        self._weights.finish()

    @property
    def loading_seconds(self) -> float:
        """From the first read of a weight to the arrival of the last, once they are loaded."""
        return self._weights.seconds

    def run_eagerly(self, shape: StepShape) -> None:
        """The same kernels as a graph's, launched one by one: the same bits."""
        if shape not in self._eager:
            if len(self._eager) == EAGER_SHAPES:
                self._eager.pop(next(iter(self._eager)))  # the oldest
            self._eager[shape] = self._launcher.prepare(self.recorder.record(shape.tokens, shape))
        self._eager[shape].run()

    def forget_stored(self) -> bool:
        self._eager.clear()
        return self._compiler.forget_learned()

    def poison_logits(self, rows: int) -> None:
        self._turns.poison()
        self._device.use()
        size = 4 * rows * self.limits.vocabulary
        # All bits set are a NaN.
        check(cuda.cuMemsetD8Async(self._logits_address, 0xFF, size, self._device.stream))

    def poison_kv(self, blocks: int) -> None:
        self._device.use()
        for region in self.layout:
            if region.group == "kv":
                offset, size = region.part(1, blocks)
                address = self._addresses[region.name] + offset
                check(cuda.cuMemsetD8Async(address, 0xFF, size, self._device.stream))

    def logits(self, rows: int) -> NDArray[np.float32]:
        return self._logit_rows.copy(range(rows))

    def drawn(self) -> Sequence[int]:
        return self._turns.last.read()

    def timing(self) -> StepTiming:
        return self._turns.last

    def result(self, rows: int) -> DeviceLogits:  # noqa: ARG002 (the logits are where they are)
        return DeviceLogits(self._logit_rows, self._turns.last)


def _check_model(config: ModelConfig) -> None:
    if config.head_dim not in HEAD_DIMS:
        raise ModelError(
            f"--device cuda: heads of dimension {config.head_dim} are not supported; these are:"
            f" {', '.join(map(str, HEAD_DIMS))}"
        )


def _share_memory(
    device: Device, config: ModelConfig, settings: BackendSettings, peers: Peers
) -> PeerMemory:
    if device.multiprocessors < REDUCE_PROGRAMS:
        raise ModelError(
            f"--tensor-parallel-size {settings.ranks}: {device.name} has {device.multiprocessors}"
            f" multiprocessors, and what adds up over GPUs needs {REDUCE_PROGRAMS}"
        )
    try:
        return PeerMemory(device, plan_peers(config, settings), peers, settings.rank)
    except CudaError as error:
        raise ModelError(
            f"--tensor-parallel-size {settings.ranks}: the GPUs cannot share memory: {error}"
        ) from error


def _open_device(ordinal: int) -> Device:
    try:
        device = Device(ordinal)
    except RuntimeError as error:  # CudaError, or that of the bindings, which found no driver
        number = f" for rank {ordinal}" if ordinal else ""
        raise ModelError(f"--device cuda: no usable GPU{number}: {error}") from error
    if device.capability < OLDEST_CAPABILITY:
        raise ModelError(
            f"--device cuda: {device.name} has compute capability {device.capability / 10};"
            f" {OLDEST_CAPABILITY / 10} is the oldest that is supported"
        )
    return device
