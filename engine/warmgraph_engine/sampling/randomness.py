"""Random numbers that depend on the request alone.

Each sequence has a stream named by a key; the n-th number of a stream is a pure function of the
key and n (Philox, a counter-based generator). So a result does not change with the neighbours in
the batch, the batch size, graphs, or a preemption that computes a sequence again.
"""

from __future__ import annotations

import os

import numpy as np

_MASK = 2**64 - 1


def random_key(seed: int | None, choice: int) -> tuple[int, int]:
    """Key of the `choice`-th output of a request. Without a seed the key is drawn at random."""
    word = int.from_bytes(os.urandom(8), "little") if seed is None else seed & _MASK
    return word, choice


def uniforms(key: tuple[int, int], first: int, count: int) -> list[float]:
    """Numbers `first`, `first` + 1, … of the stream `key`, in [0, 1)."""
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=first)
    # Each count of the generator gives four words, of which the first is ours; of it the upper
    # 53 bits, which a double holds exactly.
    words = generator.random_raw(4 * count)[::4]
    numbers: list[float] = ((words >> 11) * 2.0**-53).tolist()
    return numbers


def uniform(key: tuple[int, int], position: int) -> float:
    """Number `position` of the stream `key`, in [0, 1)."""
    return uniforms(key, position, 1)[0]
