"""A model in a CPU arena, ready to run steps."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from warmgraph_engine.backends import settings as common
from warmgraph_engine.backends.cpu.loader import load_weights
from warmgraph_engine.backends.cpu.memory import CpuArena
from warmgraph_engine.backends.cpu.player import CpuPlayer
from warmgraph_engine.backends.cpu.recorder import CpuRecorder
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.buffers import StaticBuffers
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.models.rope import rope_tables
from warmgraph_engine.models.shard import shard
from warmgraph_engine.models.steps import StepInputs, step_function
from warmgraph_engine.models.weights import weight_specs
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.shapes import StepShape

TOLERANCES = {"float32": 1e-3, "bfloat16": 5e-2, "float16": 1e-2}
"""By type of the model. A padded graph may run the same sums in another order; with 24 bits of
mantissa that moves a logit by about 1e-5 of the largest, with 8 bits by a few percent. A graph that
reads wrong memory is off by about 1."""


class CpuBackend:
    """Allocates the arena and loads the weights. Raises ModelError."""

    launches = None

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: BackendSettings,
        *,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        config = shard(checkpoint.config, settings.ranks)
        specs = weight_specs(config, checkpoint.tensors.keys())
        self.limits = common.limits(config, settings)
        self.tolerance = TOLERANCES[settings.dtype]
        self.layout = common.plan_arena(config, settings, specs)
        self.arena = CpuArena(self.layout)
        load_weights(
            self.arena,
            checkpoint,
            specs,
            quantizes=settings.quantizes,
            rank=settings.rank,
            ranks=settings.ranks,
            progress=progress,
        )
        if config.rope is not None:
            tables = rope_tables(config.rope, config.head_dim, settings.max_model_length)
            for name, table in zip(("cos", "sin"), tables, strict=True):
                self.arena.tensor(f"weights.rope.{name}").copy_(torch.from_numpy(table))
        names = [name for name, _, _ in common.buffer_sizes(config, settings).regions()]
        arrays = {name: self.arena.array(f"buffers.{name}") for name in names}
        self.buffers = StaticBuffers(arrays, block_size=settings.block_size)
        self.player = CpuPlayer(self.arena)
        self.sampler = CpuSampler(vocabulary=config.vocabulary)
        self._step = step_function(config)
        self._logits = arrays["logits"]

    @cached_property
    def recorder(self) -> CpuRecorder:
        return CpuRecorder(self.arena, self._step)

    def finish_loading(self) -> None:
        """It loads when it is made: recording runs a step here, on these weights."""

    def run_eagerly(self, shape: StepShape) -> None:
        with torch.inference_mode():
            self._step(self.arena, StepInputs(self.arena, shape))

    def forget_stored(self) -> bool:
        return False  # they bring nothing that others use

    def poison_logits(self, rows: int) -> None:
        self._logits[:rows] = np.nan

    def poison_kv(self, blocks: int) -> None:
        for region in self.layout:
            if region.group == "kv":
                self.arena.tensor(region.name)[1 : 1 + blocks].fill_(np.nan)

    def drawn(self) -> None:
        return None

    def timing(self) -> None:
        return None

    def logits(self, rows: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return self._logits[:rows]

    result = logits


def device_facts() -> dict[str, str]:
    """Of the cache key: which processor the graphs are for."""
    return {
        "device_name": str(torch.backends.cpu.get_cpu_capability()),
        "device_architecture": platform.machine(),
        "driver": "none",
        "cuda": "none",
        "torch": str(torch.__version__),
    }
