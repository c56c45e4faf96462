"""From the qkv projection to query, key and value heads."""

import triton
import triton.language as tl

from warmgraph_engine.backends.cuda.kernels.common import wait_for_previous


@triton.jit
def _sum_splits(pointers, bias, live, stride, SPLITS: tl.constexpr, HAS_BIAS: tl.constexpr):
    """A part of the projection, its partial sums added up, in float32."""
    total = tl.load(pointers, mask=live, other=0.0)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(pointers + split * stride, mask=live, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias, mask=live, other=0.0)
    return total


@triton.jit
def _norm_halves(a, b, weight_ptr, d, eps, HALF: tl.constexpr):
    """RMS norm over the last dimension of a head that is given as two halves (rows, HALF)."""
    mean = (tl.sum(a * a, 1) + tl.sum(b * b, 1)) / (2 * HALF)
    scale = tl.rsqrt(mean + eps)[:, None]
    a *= scale * tl.load(weight_ptr + d).to(tl.float32)[None, :]
    b *= scale * tl.load(weight_ptr + HALF + d).to(tl.float32)[None, :]
    return a, b


@triton.jit
def split_heads(
    partial_ptr,
    bias_ptr,
    q_norm_ptr,
    k_norm_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    slots_ptr,
    query_ptr,
    key_cache_ptr,
    value_cache_ptr,
    tokens,
    eps,
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    QK_NORM: tl.constexpr,
    ROPE: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Add up the projection (SPLITS, tokens, heads + 2 kv_heads, head_dim), rotate, store.

    query (tokens, heads, head_dim); caches (blocks, kv_heads, block_size, head_dim); cos and sin
    (positions, head_dim / 2), float32. grid (tokens, kv_heads): a program has one KV head and
    the query heads that share it.
    """
    wait_for_previous(PDL)
    HALF: tl.constexpr = HEAD_DIM // 2
    GROUP: tl.constexpr = HEADS // KV_HEADS
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    d = tl.arange(0, HALF)
    g = tl.arange(0, GROUP_PAD)
    one = tl.arange(0, 1)
    stride = tokens.to(tl.int64) * WIDTH
    part = partial_ptr + row * WIDTH
    slot = tl.load(slots_ptr + row)

    q_at = (head * GROUP + g)[:, None] * HEAD_DIM + d[None, :]
    k_at = (HEADS + head + one)[:, None] * HEAD_DIM + d[None, :]
    v_at = k_at + KV_HEADS * HEAD_DIM
    live = (g < GROUP)[:, None]
    all_live = (one == 0)[:, None]
    q1 = _sum_splits(part + q_at, bias_ptr + q_at, live, stride, SPLITS, HAS_BIAS)
    q2 = _sum_splits(part + q_at + HALF, bias_ptr + q_at + HALF, live, stride, SPLITS, HAS_BIAS)
    k1 = _sum_splits(part + k_at, bias_ptr + k_at, all_live, stride, SPLITS, HAS_BIAS)
    k2 = _sum_splits(part + k_at + HALF, bias_ptr + k_at + HALF, all_live, stride, SPLITS, HAS_BIAS)
    v1 = _sum_splits(part + v_at, bias_ptr + v_at, all_live, stride, SPLITS, HAS_BIAS)
    v2 = _sum_splits(part + v_at + HALF, bias_ptr + v_at + HALF, all_live, stride, SPLITS, HAS_BIAS)
    if QK_NORM:
        q1, q2 = _norm_halves(q1, q2, q_norm_ptr, d, eps, HALF)
        k1, k2 = _norm_halves(k1, k2, k_norm_ptr, d, eps, HALF)
    if ROPE:
        position = tl.load(positions_ptr + row)
        cos = tl.load(cos_ptr + position * HALF + d)[None, :]
        sin = tl.load(sin_ptr + position * HALF + d)[None, :]
        q1, q2 = q1 * cos - q2 * sin, q2 * cos + q1 * sin
        k1, k2 = k1 * cos - k2 * sin, k2 * cos + k1 * sin

    dtype = query_ptr.dtype.element_ty
    query = query_ptr + row * HEADS * HEAD_DIM + q_at
    tl.store(query, q1.to(dtype), mask=live)
    tl.store(query + HALF, q2.to(dtype), mask=live)
    cell = (slot // BLOCK_SIZE * KV_HEADS + head) * BLOCK_SIZE + slot % BLOCK_SIZE
    at = cell * HEAD_DIM + d[None, :]
    tl.store(key_cache_ptr + at, k1.to(dtype))
    tl.store(key_cache_ptr + at + HALF, k2.to(dtype))
    tl.store(value_cache_ptr + at, v1.to(dtype))
    tl.store(value_cache_ptr + at + HALF, v2.to(dtype))
