"""Random steps of many sequences, as a scheduler could make them, and what an engine answers.

Run as a program with MODEL, CACHE, SEED and COUNT, it starts an engine and prints a line for each
step: its kind and path, and a digest of its logits.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.engine.store.engines import Engine
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_engine.step import Limits, Step, StepRow

DRAFTS = 2
SIZES = {StepKind.DECODE: (1, 2, 5, 8), StepKind.PREFILL: (4, 16, 32), StepKind.VERIFY: (1, 4, 8)}
BUCKETS = tuple(
    Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
    for kind, sizes in SIZES.items()
    for size in sizes
)
BLOCKS_EACH = 7


class _Sequences:
    """As many as a batch may have, each with blocks of its own and what it has computed so far."""

    def __init__(self, chance: random.Random, limits: Limits) -> None:
        self._chance, self._limits = chance, limits
        self._lengths = [0] * limits.max_batch_size
        self._room = min(BLOCKS_EACH * limits.block_size, limits.max_model_length)

    def row(self, sequence: int, count: int, *, logit_rows: int, keep: int) -> StepRow:
        """Its next tokens; `keep` of them stay, the others are overwritten later."""
        if self._lengths[sequence] + count > self._room:
            self._lengths[sequence] = 0  # another sequence in the same blocks
        start = self._lengths[sequence]
        self._lengths[sequence] += keep
        first = 1 + sequence * BLOCKS_EACH
        return StepRow(
            token_ids=[self._chance.randrange(self._limits.vocabulary) for _ in range(count)],
            slot=sequence,
            start_position=start,
            block_table=list(range(first, first + BLOCKS_EACH)),
            logit_rows=logit_rows,
        )

    def some(self) -> list[int]:
        """A number of them, in any order."""
        count = self._chance.randint(1, len(self._lengths))
        return self._chance.sample(range(len(self._lengths)), count)


def random_steps(seed: int, count: int, limits: Limits) -> Iterator[Step]:
    """Decodes, prefills of several chunks and verified drafts, all within the largest buckets."""
    chance = random.Random(seed)
    sequences = _Sequences(chance, limits)
    for _ in range(count):
        kind = chance.choice(list(SIZES))
        rows = []
        left = max(SIZES[kind])
        for sequence in sequences.some():
            if kind is StepKind.PREFILL:
                tokens = chance.randint(1, 12)
                if tokens > left:
                    break
                left -= tokens
                rows.append(
                    sequences.row(sequence, tokens, logit_rows=chance.randint(0, 1), keep=tokens)
                )
            elif kind is StepKind.DECODE:
                rows.append(sequences.row(sequence, 1, logit_rows=1, keep=1))
            else:
                tokens = chance.randint(1, 1 + DRAFTS)
                keep = chance.randint(1, tokens)
                rows.append(sequences.row(sequence, tokens, logit_rows=tokens, keep=keep))
        yield Step(kind=kind, rows=rows)


def start(model: Path, cache: Path) -> Engine:
    return Engine(model, cache, buckets=BUCKETS, speculative_tokens=DRAFTS)


def answers(engine: Engine, seed: int, count: int) -> list[str]:
    """A line for each step."""
    lines = []
    for step in random_steps(seed, count, engine.executor.limits):
        result = engine.executor.execute(step)
        digest = hashlib.sha256(result.logits.tobytes()).hexdigest()
        lines.append(f"{step.kind} {result.path} {result.bucket} {digest}")
    return lines


if __name__ == "__main__":
    engine = start(Path(sys.argv[1]), Path(sys.argv[2]))
    print(engine.report.cache.result, *sorted(set(engine.states().values())))
    print("\n".join(answers(engine, int(sys.argv[3]), int(sys.argv[4]))))
    engine.close()
