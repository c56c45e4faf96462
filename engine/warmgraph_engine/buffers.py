"""Static buffers: the arrays that a graph reads its inputs from and writes its logits to.

Their addresses never change, so everything about a step that a graph must know is written here
before a replay: tokens, positions, where keys and values go, who belongs together, how long each
sequence is, and how much of all that is valid. A graph is captured for a shape; the rest of the
shape is padding. Padding is safe by construction: it points at block 0, which belongs to no
sequence, and its context length is 1, never 0.

buffers (T tokens, S sequences, L logit rows, W blocks per sequence)
    input_ids       int64 [T]     -1 - slot stands for the token drawn last for the slot
    positions       int64 [T]
    slots           int64 [T]     where the token's key and value go: block * block_size + offset
    query_starts    int32 [S + 1] first token of each sequence; all tokens of a padding sequence
                                  beyond a decode step's are none
    context_lengths int32 [S]     positions of the sequence in the KV cache after this step
    block_tables    int32 [S, W]
    logit_rows      int64 [L]     tokens whose logits are wanted
    counts          int32 [3]     valid tokens, valid sequences, valid logit rows
    logits          float32 [L, vocabulary]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgraph_engine.kv import DUMMY_BLOCK
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import PENDING_TOKEN, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSizes:
    """The largest step that the buffers hold."""

    tokens: int
    sequences: int
    logit_rows: int
    table_width: int
    vocabulary: int

    def regions(self) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """(name, type, shape) of each buffer."""
        yield "input_ids", "int64", (self.tokens,)
        yield "positions", "int64", (self.tokens,)
        yield "slots", "int64", (self.tokens,)
        yield "query_starts", "int32", (self.sequences + 1,)
        yield "context_lengths", "int32", (self.sequences,)
        yield "block_tables", "int32", (self.sequences, self.table_width)
        yield "logit_rows", "int64", (self.logit_rows,)
        yield "counts", "int32", (3,)
        yield "logits", "float32", (self.logit_rows, self.vocabulary)


class StaticBuffers:
    """Writes steps into the buffers; `arrays` are views of the arena, or of pinned memory that a
    backend copies from."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], *, block_size: int) -> None:
        self.arrays = arrays
        self._block_size = block_size
        # Padding leaves the dummy block's first position alone: the canary's token is there
        # (canary.py), and a padded graph must not overwrite what it is about to read.
        tokens = len(arrays["slots"])
        # numpy's arange lets other threads run, which takes its time to be undone: one for all.
        self._numbers = np.arange(2 * max(tokens, len(arrays["logit_rows"])) + 1)
        self._dummy_offsets = 1 + self._numbers[:tokens] % (block_size - 1)

    def fill(self, step: Step, shape: StepShape) -> None:
        """Write a step and the padding up to `shape`, which must hold it."""
        arrays, size, count = self.arrays, self._block_size, len(step.rows)
        facts = [(len(r.token_ids), r.start_position, r.logit_rows, r.slot) for r in step.rows]
        # From one flat row of numbers: numpy takes twice as long for a list of tuples.
        flat = np.fromiter(chain.from_iterable(facts), np.int64, 4 * count)
        lengths, starts, rows, slots = flat.reshape(count, 4).T
        ends, stops = np.cumsum(lengths), starts + lengths
        tokens, logit_rows = int(ends[-1]), int(rows.sum())
        ids = np.fromiter(chain.from_iterable(r.token_ids for r in step.rows), np.int64, tokens)
        sequences = np.repeat(self._numbers[:count], lengths)
        arrays["input_ids"][:tokens] = np.where(ids == PENDING_TOKEN, -1 - slots[sequences], ids)
        positions = self._numbers[:tokens] + (stops - ends)[sequences]
        arrays["positions"][:tokens] = positions
        self._fill_tables(step, -(-stops // size))
        blocks = arrays["block_tables"][sequences, positions // size].astype(np.int64)
        arrays["slots"][:tokens] = blocks * size + positions % size
        arrays["query_starts"][0] = 0
        arrays["query_starts"][1 : count + 1] = ends
        arrays["context_lengths"][:count] = stops
        wanted = self._numbers[:logit_rows] + np.repeat(ends - np.cumsum(rows), rows)
        arrays["logit_rows"][:logit_rows] = wanted
        arrays["counts"][:] = (tokens, count, logit_rows)
        if (tokens, count, logit_rows) != (shape.tokens, shape.sequences, shape.logit_rows):
            self._pad(tokens, count, logit_rows, shape)

    def _fill_tables(self, step: Step, used: NDArray[np.int64]) -> None:
        tables = self.arrays["block_tables"][: len(used)]
        tables[:] = DUMMY_BLOCK
        flat, width = tables.data.cast("B").cast("i"), tables.shape[1]
        for number, (row, count) in enumerate(zip(step.rows, used.tolist(), strict=True)):
            flat[number * width : number * width + count] = row.block_table[:count]

    def _pad(self, tokens: int, sequences: int, rows: int, shape: StepShape) -> None:
        arrays = self.arrays
        arrays["input_ids"][tokens : shape.tokens] = 0
        arrays["positions"][tokens : shape.tokens] = 0
        arrays["slots"][tokens : shape.tokens] = (
            DUMMY_BLOCK * self._block_size + self._dummy_offsets[tokens : shape.tokens]
        )
        # One token for each padding sequence as far as there are any, so that in a decode step
        # every row is a sequence; then empty ones.
        starts = self._numbers[tokens : tokens + shape.sequences - sequences + 1]
        arrays["query_starts"][sequences : shape.sequences + 1] = np.minimum(starts, shape.tokens)
        arrays["context_lengths"][sequences : shape.sequences] = 1
        arrays["block_tables"][sequences : shape.sequences] = DUMMY_BLOCK
        arrays["logit_rows"][rows : shape.logit_rows] = 0
