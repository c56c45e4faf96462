"""Attention over the paged KV cache.

A sequence's positions are worked in splits of SPLIT, counted from position 0, each with an online
softmax of its own, and the splits are merged in order. Decode gives every split to a program of
its own, a chunk works them one after the other; both do the same arithmetic in the same order, so
that a token gets the same bits as part of a prefill, of a verify step, or alone.

Which program works on what follows from the lengths in the static buffers, so that one graph
serves every length.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from warmgraph_engine.backends.cuda.kernels.common import prefetch, wait_for_previous


@triton.jit
def _attend(
    q,
    key_cache_ptr,
    value_cache_ptr,
    table_ptr,
    head,
    begin,
    end,
    lowest,
    limit,
    scale,
    ROWS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Softmax of q (ROWS, HEAD_DIM) over the positions begin..end, of which row i sees
    lowest[i]..limit[i]. scale includes log2(e).

    Returns each row's largest score, the sum of the exponentials (in 16 equal columns, the
    narrowest product) and the weighted sum of the values.
    """
    d = tl.arange(0, HEAD_DIM)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS, 16], tl.float32)
    acc = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    ones = tl.full([TILE, 16], 1.0, q.dtype)
    for first in tl.range(begin, end, TILE, num_stages=STAGES):
        position = first + tl.arange(0, TILE)
        live = position < end
        block = tl.load(table_ptr + position // BLOCK_SIZE, mask=live, other=0).to(tl.int64)
        cell = ((block * KV_HEADS + head) * BLOCK_SIZE + position % BLOCK_SIZE) * HEAD_DIM
        # Masked, not only outweighed: what lies behind a sequence's end may be NaN.
        k = tl.load(key_cache_ptr + cell[None, :] + d[:, None], mask=live[None, :], other=0.0)
        v = tl.load(value_cache_ptr + cell[:, None] + d[None, :], mask=live[:, None], other=0.0)
        score = tl.dot(q, k, input_precision="ieee") * scale
        seen = (position[None, :] >= lowest[:, None]) & (position[None, :] < limit[:, None])
        score = tl.where(seen & live[None, :], score, float("-inf"))
        peak = tl.maximum(best, tl.max(score, 1))
        # A row that has seen nothing yet has no peak; any finite one keeps its zeros zero.
        safe = tl.where(peak == float("-inf"), 0.0, peak)
        p = tl.exp2(score - safe[:, None]).to(v.dtype)
        shrink = tl.exp2(best - safe)[:, None]
        # A product with ones, since its order of summation is the same in every tiling; that of
        # tl.sum is not.
        mass = tl.dot(p, ones, mass * shrink, input_precision="ieee")
        acc = tl.dot(p, v, acc * shrink, input_precision="ieee")
        best = peak
    return best, tl.max(mass, 1), acc


@triton.jit
def _merge(best, mass, acc, best2, mass2, acc2):
    """Join the softmax of one split with that of the splits before it."""
    peak = tl.maximum(best, best2)
    safe = tl.where(peak == float("-inf"), 0.0, peak)
    a = tl.exp2(best - safe)
    b = tl.exp2(best2 - safe)
    return peak, tl.fma(mass, a, mass2 * b), tl.fma(acc, a[:, None], acc2 * b[:, None])


@triton.jit
def _find(item, index, first, count):
    """The list that item belongs to, if list i has count[i] items and they are numbered through,
    and the item's number in that list, counted from first[i]."""
    ends = tl.cumsum(count, 0)
    row = tl.sum((ends <= item).to(tl.int32), 0)
    mine = index == row
    return row, item - tl.sum(tl.where(mine, ends - count - first, 0), 0)


@triton.jit
def attention_decode(
    query_ptr,
    key_cache_ptr,
    value_cache_ptr,
    out_ptr,
    part_ptr,
    part_best_ptr,
    part_mass_ptr,
    arrived_ptr,
    tables_ptr,
    lengths_ptr,
    sequences,
    table_width,
    window,
    scale,
    SEQUENCES_PAD: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """One token of each sequence. The last program to finish one of a sequence's splits merges
    them all.

    query and out (sequences, heads, head_dim); part (splits of all sequences, kv_heads, heads of
    a group, head_dim), part_best and part_mass without the last dimension; arrived
    (sequences, kv_heads), zero before and after. grid (any, kv_heads).
    """
    GROUP: tl.constexpr = HEADS // KV_HEADS
    head = tl.program_id(1)
    g = tl.arange(0, GROUP_PAD)
    d = tl.arange(0, HEAD_DIM)
    live = (g < GROUP)[:, None]
    index = tl.arange(0, SEQUENCES_PAD)
    lengths = tl.load(lengths_ptr + index, mask=index < sequences, other=0)
    firsts = tl.maximum(lengths - window, 0) // SPLIT
    counts = (lengths + SPLIT - 1) // SPLIT - firsts
    total = tl.sum(counts, 0)
    item = tl.program_id(0)
    if item >= total:
        return  # without waiting: the kernel ends with its other programs, and they do
    row, split = _find(item, index, firsts, counts)
    length = tl.sum(tl.where(index == row, lengths, 0), 0)
    if PDL:
        # Earlier steps wrote all of this but the newest position.
        position = tl.minimum(split * SPLIT + tl.arange(0, SPLIT), length - 1)
        table = tables_ptr + row.to(tl.int64) * table_width
        block = tl.load(table + position // BLOCK_SIZE).to(tl.int64)
        ahead = ((block * KV_HEADS + head) * BLOCK_SIZE + position % BLOCK_SIZE) * HEAD_DIM
        ITEM: tl.constexpr = key_cache_ptr.dtype.element_ty.primitive_bitwidth // 8
        prefetch(key_cache_ptr + ahead, HEAD_DIM * ITEM)
        prefetch(value_cache_ptr + ahead, HEAD_DIM * ITEM)
        gdc_launch_dependents()
        gdc_wait()
    while item < total:
        cell = (row * HEADS + head * GROUP + g)[:, None] * HEAD_DIM + d[None, :]
        q = tl.load(query_ptr + cell, mask=live, other=0.0)
        end = tl.minimum(length, split * SPLIT + SPLIT)
        lowest = tl.zeros([GROUP_PAD], tl.int32) + tl.maximum(length - window, 0)
        limit = tl.zeros([GROUP_PAD], tl.int32) + end
        best, mass, acc = _attend(
            q,
            key_cache_ptr,
            value_cache_ptr,
            tables_ptr + row.to(tl.int64) * table_width,
            head,
            split * SPLIT,
            end,
            lowest,
            limit,
            scale,
            GROUP_PAD,
            KV_HEADS,
            HEAD_DIM,
            BLOCK_SIZE,
            TILE,
            STAGES,
        )
        first = tl.maximum(length - window, 0) // SPLIT
        splits = (length + SPLIT - 1) // SPLIT - first
        if splits == 1:
            tl.store(out_ptr + cell, (acc / mass[:, None]).to(out_ptr.dtype.element_ty), mask=live)
        else:
            stat = (item * KV_HEADS + head) * GROUP + g
            part = part_ptr + stat.to(tl.int64)[:, None] * HEAD_DIM + d[None, :]
            tl.store(part, acc, mask=live)
            tl.store(part_best_ptr + stat, best, mask=g < GROUP)
            tl.store(part_mass_ptr + stat, mass, mask=g < GROUP)
            tl.debug_barrier()  # all threads' stores come before the one thread's release
            counter = arrived_ptr + row * KV_HEADS + head
            before = tl.atomic_add(counter, 1, sem="acq_rel")
            if before == splits - 1:
                tl.debug_barrier()
                best = tl.full([GROUP_PAD], float("-inf"), tl.float32)
                mass = tl.zeros([GROUP_PAD], tl.float32)
                acc = tl.zeros([GROUP_PAD, HEAD_DIM], tl.float32)
                for earlier in range(splits):
                    stat = ((item - split + first + earlier) * KV_HEADS + head) * GROUP + g
                    part = part_ptr + stat.to(tl.int64)[:, None] * HEAD_DIM + d[None, :]
                    best_at, mass_at = part_best_ptr + stat, part_mass_ptr + stat
                    # From the L2 cache: this multiprocessor's own may hold an older step's.
                    acc2 = tl.load(part, mask=live, other=0.0, cache_modifier=".cg")
                    best2 = tl.load(best_at, mask=g < GROUP, other=0.0, cache_modifier=".cg")
                    mass2 = tl.load(mass_at, mask=g < GROUP, other=1.0, cache_modifier=".cg")
                    best, mass, acc = _merge(best, mass, acc, best2, mass2, acc2)
                out = (acc / mass[:, None]).to(out_ptr.dtype.element_ty)
                tl.store(out_ptr + cell, out, mask=live)
                tl.store(counter, 0)
        item += tl.num_programs(0)
        row, split = _find(item, index, firsts, counts)
        length = tl.sum(tl.where(index == row, lengths, 0), 0)


@triton.jit
def attention_chunk(
    query_ptr,
    key_cache_ptr,
    value_cache_ptr,
    out_ptr,
    tables_ptr,
    lengths_ptr,
    starts_ptr,
    sequences,
    table_width,
    window,
    scale,
    SEQUENCES_PAD: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """The last tokens of each sequence, any number of them: prefill and verify.

    query and out (tokens, heads, head_dim). A program has TOKENS tokens of one sequence, and the
    query heads of one KV head. grid (at least tokens / TOKENS + sequences, kv_heads).
    """
    GROUP: tl.constexpr = HEADS // KV_HEADS
    ROWS: tl.constexpr = TOKENS * GROUP_PAD
    index = tl.arange(0, SEQUENCES_PAD)
    here = index < sequences
    begins = tl.load(starts_ptr + index, mask=here, other=0)
    counts = tl.load(starts_ptr + index + 1, mask=here, other=0) - begins
    tiles = (counts + TOKENS - 1) // TOKENS
    lengths = tl.load(lengths_ptr + index, mask=here, other=0)
    wait_for_previous(PDL)
    item = tl.program_id(0)
    head = tl.program_id(1)
    if item < tl.sum(tiles, 0):
        row, tile = _find(item, index, tl.zeros_like(tiles), tiles)
        mine = index == row
        start = tl.sum(tl.where(mine, begins, 0), 0)
        count = tl.sum(tl.where(mine, counts, 0), 0)
        length = tl.sum(tl.where(mine, lengths, 0), 0)
        r = tl.arange(0, ROWS)
        g = r % GROUP_PAD
        d = tl.arange(0, HEAD_DIM)
        token = tile * TOKENS + r // GROUP_PAD
        live = ((token < count) & (g < GROUP))[:, None]
        cell = (start + token).to(tl.int64) * HEADS + head * GROUP + g
        cell = cell[:, None] * HEAD_DIM + d[None, :]
        q = tl.load(query_ptr + cell, mask=live, other=0.0)
        limit = length - count + token + 1
        lowest = tl.maximum(limit - window, 0)
        end = tl.minimum(length, length - count + (tile + 1) * TOKENS)
        first = tl.maximum(length - count + tile * TOKENS + 1 - window, 0) // SPLIT
        table = tables_ptr + row.to(tl.int64) * table_width
        best = tl.full([ROWS], float("-inf"), tl.float32)
        mass = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, HEAD_DIM], tl.float32)
        for begin in range(first * SPLIT, end, SPLIT):
            best2, mass2, acc2 = _attend(
                q,
                key_cache_ptr,
                value_cache_ptr,
                table,
                head,
                begin,
                tl.minimum(end, begin + SPLIT),
                lowest,
                limit,
                scale,
                ROWS,
                KV_HEADS,
                HEAD_DIM,
                BLOCK_SIZE,
                TILE,
                STAGES,
            )
            best, mass, acc = _merge(best, mass, acc, best2, mass2, acc2)
        tl.store(out_ptr + cell, (acc / mass[:, None]).to(out_ptr.dtype.element_ty), mask=live)
