"""Random steps of many sequences, as a scheduler could make them, and what an engine answers.

Run as a program with MODEL, CACHE, SEED and COUNT, and maybe DEVICE, it starts an engine and prints
a line for each step: its kind and path, and a digest of its logits.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.engine.store.engines import Engine, logits_of
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_api.resource import Device
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.step import Limits, Step, StepRow

DRAFTS = 2
SIZES = {StepKind.DECODE: (1, 2, 5, 8), StepKind.PREFILL: (4, 16, 32), StepKind.VERIFY: (1, 4, 8)}
BUCKETS = tuple(
    Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
    for kind, sizes in SIZES.items()
    for size in sizes
)
BLOCKS_EACH = 7
KV_CACHE_BYTES = {Device.CPU: 64 << 10, Device.CUDA: 1 << 20}
"""Blocks for eight sequences: a GPU's model has wider heads."""


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
            block_table=BlockTable(range(first, first + BLOCKS_EACH)),
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


def start(model: Path, cache: Path, device: Device = Device.CPU) -> Engine:
    return Engine(
        model,
        cache,
        device=device,
        buckets=BUCKETS,
        speculative_tokens=DRAFTS,
        kv_cache_bytes=KV_CACHE_BYTES[device],
    )


def answers(engine: Engine, seed: int, count: int, *, restoring: bool = False) -> list[str]:
    """A line for each step; `restoring` one of the graphs anew before every tenth."""
    lines = []
    for number, step in enumerate(random_steps(seed, count, engine.executor.limits)):
        if restoring and number % 10 == 0:
            engine.restore_again(number // 10)
        result = engine.executor.execute(step)
        digest = hashlib.sha256(logits_of(step, result)).hexdigest()
        lines.append(f"{step.kind} {result.path} {result.bucket} {digest}")
    return lines


def check_restored(captured: list[str], output: str) -> None:
    """The program's output is what a process answered that captured the graphs: the same bits, from
    graphs of every bucket."""
    first, *restored = output.splitlines()
    assert first == "Hit Restored"
    assert len(restored) == len(captured)
    differing = [
        n for n, pair in enumerate(zip(captured, restored, strict=True)) if len(set(pair)) > 1
    ]
    assert differing == []
    used = {tuple(line.split()[:3]) for line in captured}
    assert {path for _, path, _ in used} == {"exact", "padded"}, "some steps ran without a graph"
    assert {(kind, int(size)) for kind, _, size in used} == {
        (kind, size) for kind, sizes in SIZES.items() for size in sizes
    }


if __name__ == "__main__":
    engine = start(Path(sys.argv[1]), Path(sys.argv[2]), *map(Device, sys.argv[5:]))
    print(engine.report.cache.result, *sorted(set(engine.states().values())))
    print("\n".join(answers(engine, int(sys.argv[3]), int(sys.argv[4]), restoring=True)))
    engine.close()
