"""Prompts of speculative.py: whose answers drafts from n-grams get right, and whose they do not.

Chats are for a model that can talk. On random weights hardly a draft would be right, so there are
weights that recite (checkpoints.py): what they say next follows from the last token alone, for the
same work. Of what they are asked, either all drafts are right or none is; real text lies between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

RIVER = """The river rises in the hills north of the town, flows past the old mill and the market
square, and reaches the sea near the lighthouse. In spring the meadows beside it are under water,
and the road to the harbour is closed until the end of April."""
MEETING = """The meeting was moved from Monday to Thursday because two of the five members were
ill. Anna will book the large room on the second floor, Peter brings the figures of the last
quarter, and everybody reads the draft of the contract before lunch on Wednesday."""
RECIPE = """Mix the flour with the sugar and a little salt, add the eggs one after the other, and
stir until the dough is smooth. Let it rest for half an hour in a cool place, roll it out on the
table, and bake it for twenty minutes at two hundred degrees."""
CODE = """def total(prices, discount):
    result = 0.0
    for price in prices:
        if price > 100.0:
            price = price * (1.0 - discount)
        result = result + price
    return result"""

CHATS: Mapping[str, Sequence[str]] = {
    "repeats": [f"Repeat this word for word:\n\n{t}" for t in (RIVER, MEETING, RECIPE, CODE)],
    "new": [
        "Explain to a child why the sky is blue.",
        "Write a short story about a dog who finds a key.",
        "Why did the Roman Empire fall?",
        "Give me advice for a job interview.",
    ],
}

RING = 32
"""Tokens that follow each other round and round; all others count up. More than any draft has."""


def successors(vocabulary: int) -> NDArray[np.int64]:
    """By token: what weights that recite say after it."""
    following = np.arange(1, vocabulary + 1)
    following[RING - 1], following[vocabulary - 1] = 0, RING
    return following


def recited(sequences: int, tokens: int) -> dict[str, list[list[int]]]:
    """Prompts of as many sequences, for answers of as many tokens."""
    return {
        "right": [[(7 * row + n) % RING for n in range(2 * RING)] for row in range(sequences)],
        "wrong": [_misleading(RING + row * (tokens + 1), tokens) for row in range(sequences)],
    }


def _misleading(first: int, tokens: int) -> list[int]:
    """The answer counts up from the last token, and each two of its tokens stand in the prompt with
    another behind them."""
    pairs = [(token, token + 1, 0) for token in range(first, first + tokens)]
    return [*(token for pair in pairs for token in pair), first]
