"""How a matrix product is cut into programs.

The numbers are the best of what was tried on an H200 for whole decode steps of two models of 1.1
and 8 billion parameters, replayed as graphs with 1, 8 and 64 sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

MULTIPROCESSORS = 128
"""Fewer programs than about this many leave memory bandwidth unused (an H200 has 132)."""

SHORTEST_SLICE = 1024
"""Inner dimension of a split: below it, starting a program costs more than it gains."""

UNMERGED_ROWS = 512
"""Up to here every split writes partial sums. Above, the tiles of rows are enough to fill the GPU,
and one program adds up all splits."""

ROW_CLASSES = (16, 32, 64, UNMERGED_ROWS)
"""Row counts up to each of these, and those above the last, are worked by different kernels."""

SHARED_BYTES = 200 << 10
"""Of 227 KiB that a program may have on compute capability 9.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    block_m: int
    """Rows of x."""
    block_n: int
    """Rows of the weight, 64 at least: the width of Hopper's matrix instruction."""
    block_k: int
    stages: int
    """Tiles in flight."""
    warps: int
    merge: bool


def splits(n: int, k: int) -> int:
    """Splits of the inner dimension. A property of the matrix alone, see kernels/linear.py."""
    count = 1
    while -(-n // 64) * count < MULTIPROCESSORS and k // (2 * count) >= SHORTEST_SLICE:
        count *= 2
    return count


def slice_size(k: int, count: int, block_k: int) -> int:
    """Inner dimension of one split, whole blocks."""
    return -(-k // (count * block_k)) * block_k


def tiling(
    rows: int, k: int, *, count: int, gated: bool, item_bytes: int, weight_bytes: int
) -> Tiling:
    """For `rows` rows and `count` splits; `item_bytes` of an activation, `weight_bytes` of a
    weight."""
    block_m = next((size for size in (16, 32, 64) if rows <= size), 128)
    large = block_m == 128
    block_n = 128 if large else 64
    # Small products want as many bytes in flight as fit; a longer block means fewer, longer
    # loads of each row.
    block_k = 64 if large or k % (count * 128) else 128
    weights = block_n * (2 if gated else 1)
    stage_bytes = block_k * (weights * weight_bytes + block_m * item_bytes)
    stages = max(2, min(4 if large else 8, SHARED_BYTES // stage_bytes))
    return Tiling(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        stages=stages,
        warps=8 if large else 4,
        merge=rows > UNMERGED_ROWS and count > 1,
    )


PREFETCH_BYTES = 2 << 20
"""Of one matrix. Streaming takes longer than the small kernels before it, so that a good start is
all there is to gain: 2 % of a step of the 1.1B shape; four times as much loses that again."""


def prefetch_size(n: int, slice_: int, weight_bytes: int, *, gated: bool) -> int:
    """Inner elements of each weight row to bring into the L2 cache ahead of time, 512 bytes at
    least or none."""
    step = 512 // weight_bytes
    rows = n * (2 if gated else 1)
    return min(PREFETCH_BYTES // (rows * weight_bytes), slice_) // step * step
