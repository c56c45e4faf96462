"""Operations on the paged KV cache, `torch.ops.warmgraph.*`.

To a graph each is one node. They read lengths, block tables and slots from the static buffers
when they run, so that one graph serves every length, and they look at each sequence alone, so
that no result depends on the neighbours in the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed
from torch.nn.functional import scaled_dot_product_attention

# torch.library is not typed.
_library: Any = torch.library.Library("warmgraph", "DEF")  # type: ignore[no-untyped-call]
_library.define(
    "store_kv(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache,"
    " Tensor slots) -> ()"
)
_library.define(
    "paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor query_starts,"
    " Tensor context_lengths, Tensor block_tables, Tensor counts, float scale, int window)"
    " -> Tensor"
)
_library.define("all_reduce(Tensor(a!) x) -> ()")


def store_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Put keys and values, (tokens, kv_heads, head_dim), where `slots` says.

    The caches are (blocks, block_size, kv_heads, head_dim).
    """
    key_cache.flatten(0, 1).index_copy_(0, slots, key)
    value_cache.flatten(0, 1).index_copy_(0, slots, value)


def paged_attention(  # noqa: PLR0917 (operations have positional arguments)
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    query_starts: torch.Tensor,
    context_lengths: torch.Tensor,
    block_tables: torch.Tensor,
    counts: torch.Tensor,
    scale: float,
    window: int,
) -> torch.Tensor:
    """Causal attention of each sequence's tokens over its cached positions.

    query and the result are (tokens, heads, head_dim). The tokens of a sequence are its last
    positions. Rows outside the valid tokens become zeros. `window` > 0 limits how many positions
    a token sees, itself included.
    """
    tokens, sequences, _ = counts.tolist()
    starts, lengths = query_starts.tolist(), context_lengths.tolist()
    output = torch.empty_like(query)
    output[tokens:].zero_()
    heads, head_dim = query.shape[1:]
    block_size, kv_heads = key_cache.shape[1:3]
    for sequence in range(sequences):
        # The last valid sequence ends where the padding begins, whatever the buffers say of it.
        begin, end = starts[sequence], min(starts[sequence + 1], tokens)
        context, count = lengths[sequence], end - begin
        blocks = block_tables[sequence, : -(-context // block_size)]
        keys = key_cache.index_select(0, blocks).view(-1, kv_heads, head_dim)[:context]
        values = value_cache.index_select(0, blocks).view(-1, kv_heads, head_dim)[:context]
        # The query heads that share a KV head become its rows: (kv_heads, group * count, dim).
        rows = query[begin:end].view(count, kv_heads, -1, head_dim).permute(1, 2, 0, 3)
        result = scaled_dot_product_attention(
            rows.reshape(1, kv_heads, -1, head_dim),
            keys.transpose(0, 1).unsqueeze(0),
            values.transpose(0, 1).unsqueeze(0),
            attn_mask=_mask(count, context, window, heads // kv_heads),
            scale=scale,
        )
        output[begin:end].view(count, kv_heads, -1, head_dim).copy_(
            result.view(kv_heads, -1, count, head_dim).permute(2, 0, 1, 3)
        )
    return output


def _mask(count: int, context: int, window: int, group: int) -> torch.Tensor | None:
    """True where a token may look, (group * count, context); None where it may look anywhere."""
    limited = 0 < window < context
    if count == 1 and not limited:
        return None
    allowed = torch.ones(count, context, dtype=torch.bool).tril_(context - count)
    if limited:
        allowed.triu_(context - count - window + 1)
    return allowed.repeat(group, 1)


def all_reduce(x: torch.Tensor) -> None:
    """Replace x by the sum of all ranks' x, summed in float32; every rank gets the same bits.

    Raises RuntimeError if a rank is gone, or silent for longer than ranks.py allows.
    """
    total = x.float()  # itself, if it is float32 already
    distributed.all_reduce(total)
    if total is not x:
        x.copy_(total)


_library.impl("all_reduce", all_reduce, "CPU")
_library.impl("store_kv", store_kv, "CPU")
_library.impl("paged_attention", paged_attention, "CPU")
