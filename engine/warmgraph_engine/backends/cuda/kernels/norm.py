"""The residual stream: embedding, adding a projection's partial sums, and normalizing."""

import triton
import triton.language as tl

from warmgraph_engine.backends.cuda.kernels.common import wait_for_previous


@triton.jit
def normalize(h, weight_ptr, bias_ptr, cols, live, eps, H: tl.constexpr, LAYER: tl.constexpr):
    """RMS norm, or layer norm with its bias, of one row in float32."""
    if LAYER:
        h = tl.where(live, h - tl.sum(h, 0) / H, 0.0)
    h = h * tl.rsqrt(tl.sum(h * h, 0) / H + eps)
    h *= tl.load(weight_ptr + cols, mask=live, other=0.0).to(tl.float32)
    if LAYER:
        h += tl.load(bias_ptr + cols, mask=live, other=0.0).to(tl.float32)
    return h


@triton.jit
def finish(
    added,
    row,
    place,
    projection_bias_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    cols,
    live,
    eps,
    HAS_BIAS: tl.constexpr,
    GATHER: tl.constexpr,
    H: tl.constexpr,
    LAYER: tl.constexpr,
):
    """One row of add_norm, its projection added up: row `row` of the residual, `place` of out."""
    if HAS_BIAS:
        added += tl.load(projection_bias_ptr + cols, mask=live, other=0.0)
    h = tl.load(residual_ptr + row * H + cols, mask=live, other=0.0).to(tl.float32) + added
    h = h.to(residual_ptr.dtype.element_ty)
    if not GATHER:
        tl.store(residual_ptr + row * H + cols, h, mask=live)
    h = normalize(h.to(tl.float32), weight_ptr, bias_ptr, cols, live, eps, H, LAYER)
    tl.store(out_ptr + place * H + cols, h.to(out_ptr.dtype.element_ty), mask=live)


@triton.jit
def embed_norm(
    ids_ptr,
    positions_ptr,
    embedding_ptr,
    position_embedding_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    out_ptr,
    eps,
    H: tl.constexpr,
    BLOCK_H: tl.constexpr,
    POSITIONS: tl.constexpr,
    LAYER: tl.constexpr,
    PDL: tl.constexpr,
):
    """residual = embedding of the token (plus its position's, if POSITIONS); out = norm of it.

    grid (tokens,)
    """
    wait_for_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_H)
    live = cols < H
    token = tl.load(ids_ptr + row)
    h = tl.load(embedding_ptr + token * H + cols, mask=live, other=0.0).to(tl.float32)
    if POSITIONS:
        position = tl.load(positions_ptr + row)
        h += tl.load(position_embedding_ptr + position * H + cols, mask=live, other=0.0)
        h = h.to(residual_ptr.dtype.element_ty).to(tl.float32)
    tl.store(residual_ptr + row * H + cols, h.to(residual_ptr.dtype.element_ty), mask=live)
    h = normalize(h, weight_ptr, bias_ptr, cols, live, eps, H, LAYER)
    tl.store(out_ptr + row * H + cols, h.to(out_ptr.dtype.element_ty), mask=live)


@triton.jit
def add_norm(
    partial_ptr,
    projection_bias_ptr,
    rows_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    tokens,
    eps,
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GATHER: tl.constexpr,
    H: tl.constexpr,
    BLOCK_H: tl.constexpr,
    LAYER: tl.constexpr,
    PDL: tl.constexpr,
):
    """residual += projection, given as partial sums (SPLITS, tokens, H); out = norm of it.

    grid (tokens,). GATHER: grid (logit rows,), program i works on token rows[i], and only out[i]
    is written, since the residual ends here.
    """
    cols = tl.arange(0, BLOCK_H)
    live = cols < H
    wait_for_previous(PDL)
    program = tl.program_id(0).to(tl.int64)
    row = program
    if GATHER:
        row = tl.load(rows_ptr + program)
    added = tl.zeros([BLOCK_H], tl.float32)
    for split in tl.static_range(SPLITS):
        added += tl.load(partial_ptr + (split * tokens + row) * H + cols, mask=live, other=0.0)
    finish(
        added,
        row,
        program,
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
