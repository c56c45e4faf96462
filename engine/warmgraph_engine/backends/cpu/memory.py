"""The arena on a CPU: one anonymous mapping, and torch and numpy views of its regions."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from warmgraph_engine.arena import ITEM_BYTES, ArenaLayout, Region

DTYPES = {name: getattr(torch, name) for name in ITEM_BYTES}


class CpuArena:
    """Zeroed memory for a layout. Pages are taken when first written, so that a large KV cache
    costs nothing until it is used."""

    def __init__(self, layout: ArenaLayout) -> None:
        self.layout = layout
        self._memory = mmap.mmap(-1, layout.bytes)
        # Fewer address translations per step; without huge pages the call has no effect.
        self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._tensors = {region.name: self._view(region) for region in layout}

    def _view(self, region: Region) -> torch.Tensor:
        flat = torch.frombuffer(
            self._memory,
            dtype=DTYPES[region.dtype],
            count=math.prod(region.shape),
            offset=region.offset,
        )
        return flat.view(region.shape)

    def tensor(self, name: str) -> torch.Tensor:
        """The one tensor of a region: the same object at every call."""
        return self._tensors[name]

    def array(self, name: str) -> NDArray[Any]:
        """The same memory for numpy; regions of float16 and bfloat16 have no such view."""
        region = self.layout[name]
        return np.ndarray(
            region.shape, dtype=region.dtype, buffer=self._memory, offset=region.offset
        )
