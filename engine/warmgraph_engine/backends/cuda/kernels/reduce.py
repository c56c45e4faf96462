"""The sum over all ranks, fused with what follows it.

Each rank has an inbox that all ranks write to over NVLink (peers.py). A program writes its rows
into every inbox, raises its flag there, waits for the flags of the others, and adds up what lies in
its own inbox in the order of ranks: all ranks get the same bits, whoever comes first.

A flag holds the number of the reduction that it was raised for, an epoch that the kernel counts in
the device's memory: a graph is replayed with the arguments that it was stored with. It has 64 bits,
since a program that only the largest steps need finds flags that may be very old. The inbox has
two halves that are used in turns. A rank that writes to a half in epoch n has seen the others'
flags of n - 1, which they raised after their kernels of n - 2 had ended: nobody still reads it.

All programs of the grid must be resident at once on every rank, since they wait for those of the
others: hence one for each of a few rows, not one a row. What the launches before and after hold of
the GPU does not matter: the ones before end by themselves, and those after become resident only
when every program of this one has begun.
"""

import triton
import triton.language as tl

from warmgraph_engine.backends.cuda.kernels.common import wait_for_previous
from warmgraph_engine.backends.cuda.kernels.norm import finish


@triton.jit
def _send(value, places_ptr, place, cols, live, RANKS: tl.constexpr):
    """Write one row into every rank's inbox, the own one among them."""
    for peer in tl.static_range(RANKS):
        inbox = tl.load(places_ptr + peer).to(tl.pointer_type(tl.float32))
        tl.store(tl.multiple_of(inbox, 16) + place + cols, value, mask=live)


@triton.jit
def _raise_flags(places_ptr, at, rank, epoch, RANKS: tl.constexpr):
    for peer in tl.static_range(RANKS):
        if peer != rank:
            flags = tl.load(places_ptr + RANKS + peer).to(tl.pointer_type(tl.int64))
            tl.atomic_xchg(flags + at, epoch, sem="release", scope="sys")


@triton.jit
def _wait_for_flags(
    flags_ptr, state_ptr, lost_ptr, rank, epoch, spins, RANKS: tl.constexpr, PROGRAMS: tl.constexpr
):
    """Until all have raised theirs for this epoch or a later one; `spins` bounds each wait."""
    for peer in tl.static_range(RANKS):
        if peer != rank:
            flag = flags_ptr + peer * PROGRAMS + tl.program_id(0)
            behind = epoch - tl.atomic_add(flag, 0, sem="acquire", scope="sys")
            spun = 0
            while (behind > 0) & (spun < spins):
                behind = epoch - tl.atomic_add(flag, 0, sem="acquire", scope="sys")
                spun += 1
            if behind > 0:
                tl.store(state_ptr + 2, 1)  # so that no later reduction waits for it again
                tl.store(lost_ptr, peer + 1)


@triton.jit
def reduce_add_norm(
    partial_ptr,
    projection_bias_ptr,
    rows_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    inbox_ptr,
    flags_ptr,
    places_ptr,
    state_ptr,
    lost_ptr,
    tokens,
    rows,
    rank,
    spins,
    eps,
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GATHER: tl.constexpr,
    H: tl.constexpr,
    BLOCK_H: tl.constexpr,
    LAYER: tl.constexpr,
    RANKS: tl.constexpr,
    SLOTS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    PDL: tl.constexpr,
):
    """norm.add_norm on the sum of all ranks' projections.

    inbox (2, RANKS, SLOTS, H), float32, and flags (RANKS, PROGRAMS) are this rank's; places
    (2, RANKS) holds the addresses of all inboxes and all flags. state: epoch of the last reduction,
    programs that have ended in this one, whether a rank is lost. lost is the host's: 1 + the rank
    that did not come. grid (at most PROGRAMS,), in which a program works every so many-th row.
    """
    cols = tl.arange(0, BLOCK_H)
    live = cols < H
    wait_for_previous(PDL)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    # From the L2 cache: this multiprocessor's own may hold an earlier kernel's.
    epoch = tl.load(state_ptr, cache_modifier=".cg") + 1
    is_lost = tl.load(state_ptr + 2, cache_modifier=".cg")
    half = (epoch & 1) * RANKS * SLOTS
    i = program.to(tl.int64)
    while i < rows:
        row = i
        if GATHER:
            row = tl.load(rows_ptr + i)
        own = tl.zeros([BLOCK_H], tl.float32)
        for split in tl.static_range(SPLITS):
            own += tl.load(partial_ptr + (split * tokens + row) * H + cols, mask=live, other=0.0)
        _send(own, places_ptr, (half + rank * SLOTS + i) * H, cols, live, RANKS)
        i += programs
    tl.debug_barrier()  # all threads' stores come before the one thread's release
    _raise_flags(places_ptr, rank * PROGRAMS + program, rank, epoch, RANKS)
    spins = tl.where(is_lost == 0, spins, 0)
    _wait_for_flags(flags_ptr, state_ptr, lost_ptr, rank, epoch, spins, RANKS, PROGRAMS)
    tl.debug_barrier()
    i = program.to(tl.int64)
    while i < rows:
        row = i
        if GATHER:
            row = tl.load(rows_ptr + i)
        added = tl.zeros([BLOCK_H], tl.float32)
        for source in tl.static_range(RANKS):
            part = inbox_ptr + (half + source * SLOTS + i) * H + cols
            added += tl.load(part, mask=live, other=0.0, cache_modifier=".cg")
        finish(
            added,
            row,
            i,
            projection_bias_ptr,
            residual_ptr,
            weight_ptr,
            bias_ptr,
            out_ptr,
            cols,
            live,
            eps,
            HAS_BIAS,
            GATHER,
            H,
            LAYER,
        )
        i += programs
    ended = tl.atomic_add(state_ptr + 1, 1, sem="acq_rel")
    if ended == programs - 1:
        tl.store(state_ptr + 1, 0)
        tl.store(state_ptr, epoch)
