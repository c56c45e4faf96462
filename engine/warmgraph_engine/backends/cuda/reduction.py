"""A launch that works on a projection, made to work on the sum of all ranks' projections."""

from __future__ import annotations

from dataclasses import replace

from warmgraph_engine.backends.cuda.launch import Launch, Pointer
from warmgraph_engine.backends.cuda.layout import REDUCE_PROGRAMS, Geometry

REDUCE_SPINS = 1 << 25
"""Looks at a flag of another rank before it counts as lost, each some microsecond: half a minute or
more. A rank may be late by the compilation of a kernel."""


def of_all_ranks(add_norm: Launch, rows: int, ranks: int, geometry: Geometry) -> Launch:
    """norm.add_norm of `rows` rows as reduce.reduce_add_norm; as it is for a rank on its own."""
    if ranks == 1:
        return add_norm
    return replace(
        add_norm,
        kernel="reduce.reduce_add_norm",
        grid=(min(rows, REDUCE_PROGRAMS), 1, 1),
        arguments={
            **add_norm.arguments,
            "inbox_ptr": Pointer("peers.inbox"),
            "flags_ptr": Pointer("peers.flags"),
            "places_ptr": Pointer("work.places"),
            "state_ptr": Pointer("work.reductions"),
            "lost_ptr": Pointer("results.lost"),
            "rows": rows,
            "rank": geometry.rank,
            "spins": REDUCE_SPINS,
        },
        constants={
            **add_norm.constants,
            "RANKS": ranks,
            "SLOTS": geometry.max_tokens,
            "PROGRAMS": REDUCE_PROGRAMS,
        },
    )
