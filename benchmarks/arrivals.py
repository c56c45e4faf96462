"""Writes traffic.jsonl: the traffic that traffic.py replays unless it is given another.

    python -m benchmarks.arrivals

Requests come in bursts and differ in length by two orders of magnitude, as those of a chat do: most
prompts and answers are short, a few long ones hold the batch. The same seed gives the same file.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

FILE = Path(__file__).with_name("traffic.jsonl")
REQUESTS = 200
SEED = 4

BURST_SECONDS, PAUSE_SECONDS = 0.008, 0.09
"""Mean time between two arrivals in a burst, and between two bursts."""
PAUSES = 0.2
"""Of all arrivals, those that begin a burst: 40 requests a second on average."""


def lines() -> Iterator[str]:
    """One JSON object a request: when it arrives, in seconds, and its tokens."""
    chance = random.Random(SEED)  # noqa: S311 (no secret)

    def length(median: int, spread: float, *, most: int) -> int:
        normal = NormalDist(math.log(median), spread).inv_cdf(chance.random() or 0.5)
        return min(most, max(4, round(math.exp(normal))))

    now = 0.0
    for _ in range(REQUESTS):
        mean = PAUSE_SECONDS if chance.random() < PAUSES else BURST_SECONDS
        now -= mean * math.log(1 - chance.random())
        prompt, output = length(60, 1.2, most=1400), length(110, 0.9, most=600)
        yield json.dumps({"at": round(now, 3), "prompt": prompt, "output": output})


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
