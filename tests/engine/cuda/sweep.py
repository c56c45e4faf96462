"""Every bucket and how full it is, on whatever GPU a probe looks at."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.engine.cuda.models import Sequences
from tests.engine.cuda.probe import Probe, drawing
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.base import Graph
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Step

PREFILL, DECODE = StepKind.PREFILL, StepKind.DECODE


def fills(shape: StepShape, room: int) -> Iterator[list[int]]:
    """Tokens of each sequence, for steps that take a bucket's shape at its borders: one, all but
    one, all of it; in few sequences and in many. None has more tokens than `room`."""
    if shape.kind is not PREFILL:
        each = shape.tokens // shape.sequences
        for used in sorted({1, max(1, shape.sequences - 1), shape.sequences}):
            yield [each] * used
        if each > 1:  # drafts for some
            yield [1 + i % each for i in range(shape.sequences)]
        return
    for tokens in sorted({1, max(1, shape.tokens - 1), shape.tokens}):
        yield _spread(tokens, -(-tokens // room))
        if shape.sequences > 1 and tokens > 1:
            yield _spread(tokens, min(tokens, shape.sequences))


def _spread(tokens: int, sequences: int) -> list[int]:
    return [tokens // sequences + (i < tokens % sequences) for i in range(sequences)]


def sequences(probe: Probe, lengths: Sequence[int], seed: int) -> Sequences:
    """That use any blocks but the spare one."""
    return Sequences(
        lengths,
        vocabulary=probe.limits.vocabulary,
        block_size=probe.limits.block_size,
        blocks=probe.spare_block,
        seed=seed,
    )


def prefill(probe: Probe, work: Sequences, contexts: Sequence[int]) -> None:
    """The first tokens of each sequence, as many at a time as a step takes."""
    counts = [0] * len(contexts)
    for i, context in enumerate(contexts):
        if sum(counts) + context > probe.limits.max_batch_tokens:
            probe.run(work.step(PREFILL, counts, logits=0))
            counts = [0] * len(contexts)
        counts[i] = context
    if any(counts):
        probe.run(work.step(PREFILL, counts, logits=0))


def check_bucket(probe: Probe, kind: StepKind, size: int, *, drafts: int, room: int) -> None:
    """Its graph gives eager execution's bits at every fill, and leaves all else as it was.

    `room` is the longest sequence that a step may have here, at most max_batch_tokens.
    """
    graph, shape = probe.capture(kind, size, drafts=drafts)
    for counts in fills(shape, room):
        check_fill(probe, graph, shape, counts, room=room)


def check_fill(
    probe: Probe, graph: Graph, shape: StepShape, counts: list[int], *, room: int
) -> None:
    said = f"{shape.kind} of {shape.tokens} tokens, filled with {counts}"
    chance = random.Random(said)
    least = 0 if shape.kind is PREFILL else 1
    contexts = []
    for i, count in enumerate(counts):  # one in four of any length, the others soon computed
        longest = room - count if i % 4 == 0 else min(room - count, 3 * probe.limits.block_size)
        contexts.append(chance.randint(least, max(least, longest)))
    lengths = [context + count for context, count in zip(contexts, counts, strict=True)]
    work = sequences(probe, lengths, seed=chance.randrange(1 << 30))
    probe.poison_kv()
    prefill(probe, work, contexts)
    before = probe.read_kv()
    step = drawing(work.step(shape.kind, counts, logits=1 if shape.kind is PREFILL else None))
    eager = probe.eager(step)
    eager_kv = probe.read_kv()
    probe.write_kv(before)
    replayed = probe.replay(graph, step, shape)
    assert np.array_equal(eager.logits, replayed.logits), said
    assert eager.drawn == replayed.drawn, said
    _check_kv(step, before, eager_kv, probe.read_kv(), block_size=probe.limits.block_size)


Kv = Mapping[str, NDArray[np.uint8]]


def _check_kv(step: Step, before: Kv, eager: Kv, replayed: Kv, *, block_size: int) -> None:
    """Alike behind both, and only the blocks that the step writes, and the dummy, have changed."""
    written: set[int] = set()
    for row in step.rows:
        end = row.start_position + len(row.token_ids)
        written.update(row.block_table[row.start_position // block_size : -(-end // block_size)])
    for name, content in before.items():
        changed = (replayed[name][1:] != content[1:]).any(axis=1)
        assert set(1 + np.flatnonzero(changed)) == written, name
        assert np.array_equal(replayed[name][1:], eager[name][1:]), name


def greedy(
    probe: Probe, prompts: Sequence[int], tokens: int, graph: tuple[Graph, StepShape] | None
) -> list[list[int]]:
    """The likeliest tokens after prompts of these lengths, decoded together; eagerly if there is no
    graph."""
    backend = probe.backend
    work = sequences(probe, [length + tokens for length in prompts], seed=4)
    probe.poison_kv()
    prefill(probe, work, [length - 1 for length in prompts])
    texts: list[list[int]] = [[] for _ in prompts]
    for place in range(tokens):
        step = drawing(work.step(DECODE, [1] * len(prompts)))
        if graph is None:
            probe.run(step)
        else:
            backend.buffers.fill(step, graph[1])
            graph[0].replay()
        drawn = backend.drawn()
        for i, (text, length) in enumerate(zip(texts, prompts, strict=True)):
            text.append(drawn[i])
            work.tokens[i][length + place] = drawn[i]
    return texts
