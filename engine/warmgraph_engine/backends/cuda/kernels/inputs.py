"""The step's inputs, from the host's static buffers to the device's."""

import triton
import triton.language as tl


@triton.jit
def copy_inputs(
    host_ids_ptr,
    host_positions_ptr,
    host_slots_ptr,
    host_starts_ptr,
    host_lengths_ptr,
    host_tables_ptr,
    host_logit_rows_ptr,
    host_draws_ptr,
    host_set_ptr,
    last_drawn_ptr,
    ids_ptr,
    positions_ptr,
    slots_ptr,
    starts_ptr,
    lengths_ptr,
    tables_ptr,
    logit_rows_ptr,
    draws_ptr,
    set_ptr,
    tokens,
    sequences,
    max_sequences,
    logit_rows,
    table_width,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    TABLE_BLOCK: tl.constexpr,
    FIELDS: tl.constexpr,
    FIELDS_BLOCK: tl.constexpr,
):
    """Read pinned host memory in parallel: one round trip over the bus instead of a copy for each
    array. Of a block table only what its sequence uses is read. A negative id becomes the token
    drawn last for slot -1 - id.

    grid (max(blocks of tokens, sequences),); BLOCK elements of each array, one table, a program.
    """
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    is_token = at < tokens
    is_sequence = at < sequences
    # All loads before the first store: they cross the bus together.
    ids = tl.load(host_ids_ptr + at, mask=is_token, other=0)
    positions = tl.load(host_positions_ptr + at, mask=is_token, other=0)
    slots = tl.load(host_slots_ptr + at, mask=is_token, other=0)
    starts = tl.load(host_starts_ptr + at, mask=at < sequences + 1, other=0)
    lengths = tl.load(host_lengths_ptr + at, mask=is_sequence, other=0)
    rows = tl.load(host_logit_rows_ptr + at, mask=at < logit_rows, other=0)
    fields = tl.arange(0, FIELDS_BLOCK)[:, None]
    setting = fields * max_sequences + at[None, :]
    is_setting = (fields < FIELDS) & is_sequence[None, :]
    draws = tl.load(host_draws_ptr + setting, mask=is_setting, other=0.0)
    host_set = tl.load(host_set_ptr)
    length = tl.load(host_lengths_ptr + program, mask=program < sequences, other=0)
    drawn = tl.load(last_drawn_ptr + (-1 - ids), mask=is_token & (ids < 0), other=0)
    ids = tl.where(ids < 0, drawn.to(tl.int64), ids)
    tl.store(ids_ptr + at, ids, mask=is_token)
    tl.store(positions_ptr + at, positions, mask=is_token)
    tl.store(slots_ptr + at, slots, mask=is_token)
    tl.store(starts_ptr + at, starts, mask=at < sequences + 1)
    tl.store(lengths_ptr + at, lengths, mask=is_sequence)
    tl.store(logit_rows_ptr + at, rows, mask=at < logit_rows)
    tl.store(draws_ptr + setting, draws, mask=is_setting)
    tl.store(set_ptr, host_set)
    used = (length + BLOCK_SIZE - 1) // BLOCK_SIZE
    table = program.to(tl.int64) * table_width
    for first in range(0, used, TABLE_BLOCK):
        column = first + tl.arange(0, TABLE_BLOCK)
        blocks = tl.load(host_tables_ptr + table + column, mask=column < used, other=0)
        tl.store(tables_ptr + table + column, blocks, mask=column < used)
