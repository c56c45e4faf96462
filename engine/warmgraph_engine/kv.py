"""The paged KV cache's accounting: who holds which block.

Block 0 is the dummy that padding rows of a step point at. It is never handed out, so padding can
neither read nor overwrite a sequence's keys and values. What lies in the blocks is the executor's
concern; here they are numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, cast

DUMMY_BLOCK = 0

MIN_BLOCK_SIZE = 2
"""Of the dummy block's positions one is the canary's (canary.py), and padding needs another."""


if TYPE_CHECKING:
    _Array = array[int]
else:
    _Array = array  # no generic class before Python 3.12


class BlockTable(_Array):
    """A sequence's blocks in order, as int32: each step copies all of every sequence's. Slices are
    plain arrays."""

    def __new__(cls, blocks: Iterable[int] | bytes = ()) -> Self:
        """`blocks` as numbers, or as what tobytes() gave."""
        return cast("Self", super().__new__(cls, "i", blocks))


class OutOfBlocksError(RuntimeError):
    """More blocks were asked for than are free. Callers check `free` first."""


class BlockPool:
    """The blocks 1…`blocks`, each either free or held exactly once."""

    def __init__(self, blocks: int) -> None:
        if blocks < 1:
            raise ValueError(f"a KV cache needs at least one block besides the dummy, got {blocks}")
        self.total = blocks
        # A stack: the block released last is used first, while it may still be in a cache.
        self._free = list(range(blocks, DUMMY_BLOCK, -1))
        self._held = bytearray(blocks + 1)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def allocate(self, count: int) -> BlockTable:
        """Take `count` blocks, all or none."""
        if count > len(self._free):
            raise OutOfBlocksError(f"{count} KV blocks asked for, {len(self._free)} free")
        taken = BlockTable(self._free.pop() for _ in range(count))
        for block in taken:
            self._held[block] = 1
        return taken

    def release(self, blocks: Iterable[int]) -> None:
        """Give blocks back. Raises ValueError for a block that is not held: a doubly released
        block would later belong to two sequences, and each would read the other's text."""
        for block in blocks:
            if not 0 < block <= self.total or not self._held[block]:
                raise ValueError(f"KV block {block} is not held")
            self._held[block] = 0
            self._free.append(block)


def positions_of(prompt: int, max_tokens: int) -> int:
    """Most positions that an output takes: its last token is drawn, but never fed back."""
    return prompt + max(max_tokens - 1, 0)


def blocks_for(positions: int, block_size: int) -> int:
    """Blocks that hold this many positions."""
    return -(-positions // block_size)
