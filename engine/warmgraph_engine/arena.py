"""The plan of one contiguous allocation that holds everything a graph may point at.

Weights, KV cache and static buffers are regions with a name, a type and a shape. A graph refers
to memory only through a region, so that it can be stored and played by another process. The plan
is plain Python; a backend allocates it and gives out views.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "int64": 8,
    "int32": 4,
}

ALIGNMENT = 256
"""What CUDA's allocator guarantees and vector loads want; more than a CPU's cache line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    name: str
    """`weights.…`, `kv.…` or `buffers.…`."""
    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    def part(self, first: int, count: int) -> tuple[int, int]:
        """Offset from the region's start, and bytes, of `count` items of its first dimension."""
        each = self.bytes // self.shape[0]
        return first * each, count * each


class ArenaLayout:
    """Regions in the order in which they were added; offsets in bytes from the arena's base."""

    def __init__(self) -> None:
        self._regions: dict[str, Region] = {}
        self.bytes = 0

    def add(self, name: str, dtype: str, shape: Sequence[int]) -> Region:
        if name in self._regions:
            raise ValueError(f"region {name} is already in the arena")
        region = Region(name=name, offset=self.bytes, dtype=dtype, shape=tuple(shape))
        self._regions[name] = region
        self.bytes = -(-(region.offset + region.bytes) // ALIGNMENT) * ALIGNMENT
        return region

    def __getitem__(self, name: str) -> Region:
        return self._regions[name]

    def __contains__(self, name: str) -> bool:
        return name in self._regions

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions.values())

    def describe(self) -> str:
        """A line per group of regions, for the log: where it starts, how large it is."""
        groups: dict[str, list[Region]] = {}
        for region in self:
            groups.setdefault(region.group, []).append(region)
        lines = [
            f"  {name:<10} {len(regions):>5} regions  at {regions[0].offset:#014x}"
            f"  {sum(region.bytes for region in regions) / 2**20:>10.1f} MiB"
            for name, regions in groups.items()
        ]
        return "\n".join([f"arena of {self.bytes / 2**20:.1f} MiB", *lines])
