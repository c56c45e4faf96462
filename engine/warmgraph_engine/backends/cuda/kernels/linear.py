"""Matrix products with the weights, for any number of rows.

A decode step reads every weight once, so the time of a product is the time to stream its weights.
Small row counts leave too few tiles for all multiprocessors: then the inner dimension is split
too, and whoever reads the output adds up the partial sums. The number of splits belongs to the
matrix, not to the row count, and large row counts add the splits in the same order, so that a row
gets the same bits in any batch.

Weights may be fp8 with a scale for each row of the matrix (SCALED). They are widened to the type of
the activations, which holds every fp8 number exactly, and a split's sum is multiplied by the scale.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from warmgraph_engine.backends.cuda.kernels.common import (
    activate,
    multiply,
    prefetch,
    settle,
    widen,
)


@triton.jit
def _load_weights(pointers, live_n, live_k, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr):
    # Weights are read once in a step: they must not push the activations out of the L2 cache.
    if EVEN_N and EVEN_K:
        return tl.load(pointers, eviction_policy="evict_first")
    if EVEN_K:
        return tl.load(pointers, mask=live_n, other=0.0, eviction_policy="evict_first")
    return tl.load(pointers, mask=live_n & live_k, other=0.0, eviction_policy="evict_first")


@triton.jit
def _product(
    x_rows,
    weight_rows,
    up_offset,
    up,
    begin,
    slice_size,
    k_size,
    live_m,
    live_n,
    GATED: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
    COMPILED: tl.constexpr,
):
    """One split's sum of products, and the same of the up rows added to `up`."""
    k = begin + tl.arange(0, BLOCK_K)
    weights = weight_rows + k[None, :]
    inputs = x_rows + k[:, None]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    DTYPE: tl.constexpr = x_rows.dtype.element_ty
    WIDENED: tl.constexpr = COMPILED and weight_rows.dtype.element_ty != DTYPE
    for offset in tl.range(0, slice_size, BLOCK_K, num_stages=STAGES):
        live_k = k + offset < k_size
        w = _load_weights(weights + offset, live_n, live_k[None, :], EVEN_N, EVEN_K)
        w = widen(w, DTYPE)
        mask = live_m if EVEN_K else live_m & live_k[:, None]
        x = tl.load(inputs + offset, mask=mask, other=0.0)
        acc = tl.dot(w, x, acc, input_precision="ieee")
        if WIDENED:
            acc = settle(acc)
        if GATED:
            at = weights + up_offset + offset
            w = _load_weights(at, live_n, live_k[None, :], EVEN_N, EVEN_K)
            w = widen(w, DTYPE)
            up = tl.dot(w, x, up, input_precision="ieee")
            if WIDENED:
                up = settle(up)
    return acc, up


@triton.jit
def linear(
    x_ptr,
    weight_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    rows,
    n_size,
    k_size,
    slice_size,
    splits,
    prefetch_size,
    GATED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SCALED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    MERGE: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """out[split, row, n] = sum of x[row, k] * weight[n, k] over the k of a split.

    x (rows, k), weight (n, k), out (splits, rows, n); with MERGE out is (1, rows, n), the sum of
    all splits. GATED: weight holds n gate rows, then n up rows, and out is act(gate) * up.
    SCALED: weight is fp8, and scale (weight's rows,) are float32 factors of its rows.
    grid (tiles of n, splits or 1, tiles of rows); slice_size is the k of one split.
    """
    tile_n = tl.program_id(0)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    live_n = (n < n_size)[:, None]
    live_m = (m < rows)[None, :]
    first = tl.program_id(1)
    weight_rows = weight_ptr + n.to(tl.int64)[:, None] * k_size
    up_offset = n_size.to(tl.int64) * k_size
    if PDL:
        # The head of this program's weight rows, in two halves so that every thread has one: it
        # arrives while the kernels before are still at work.
        if prefetch_size > 0:
            ITEM: tl.constexpr = weight_ptr.dtype.element_ty.primitive_bitwidth // 8
            ahead = tl.where(live_n, weight_rows, weight_ptr) + first * slice_size
            ahead = ahead + (tl.arange(0, 2) * (prefetch_size // 2))[None, :]
            prefetch(ahead, prefetch_size // 2 * ITEM)
            if GATED:
                prefetch(ahead + up_offset, prefetch_size // 2 * ITEM)
        gdc_launch_dependents()
        gdc_wait()
    x_rows = x_ptr + m.to(tl.int64)[None, :] * k_size
    if SCALED:
        scale = tl.load(scale_ptr + n, mask=n < n_size, other=0.0)[:, None]
    up = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    total, up = _product(
        x_rows,
        weight_rows,
        up_offset,
        up,
        first * slice_size,
        slice_size,
        k_size,
        live_m,
        live_n,
        GATED,
        EVEN_N,
        EVEN_K,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        STAGES,
        PDL,
    )
    if SCALED:
        total = multiply(total, scale, PDL)
        if GATED:
            up_scale = tl.load(scale_ptr + n_size + n, mask=n < n_size, other=0.0)[:, None]
            up = multiply(up, up_scale, PDL)
    if MERGE:
        for split in range(1, splits):
            acc, up = _product(
                x_rows,
                weight_rows,
                up_offset,
                up,
                split * slice_size,
                slice_size,
                k_size,
                live_m,
                live_n,
                GATED,
                EVEN_N,
                EVEN_K,
                BLOCK_M,
                BLOCK_N,
                BLOCK_K,
                STAGES,
                PDL,
            )
            if SCALED:
                acc = multiply(acc, scale, PDL)
            total += acc
    if HAS_BIAS:
        total += tl.load(bias_ptr + n, mask=n < n_size, other=0.0).to(tl.float32)[:, None]
        if GATED:
            up += tl.load(bias_ptr + n_size + n, mask=n < n_size, other=0.0).to(tl.float32)[:, None]
    total = activate(total, ACTIVATION)
    if GATED:
        total *= up
    row = first * rows + m
    out = out_ptr + row.to(tl.int64)[None, :] * n_size + n[:, None]
    tl.store(out, total.to(out_ptr.dtype.element_ty), mask=live_m & live_n)
