"""Steps that touch nobody's data: what graphs are captured and checked with."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from warmgraph_api.report import StepKind
from warmgraph_engine.kv import DUMMY_BLOCK, BlockTable
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Limits, Step, StepDraw, StepRow

_KINDS = list(StepKind)


def canary_step(shape: StepShape) -> Step:
    """One token of one sequence in the dummy block: the least that a step of this kind can be.

    Captures run with it, so that they may happen between the steps of real requests.
    """
    row = StepRow(
        token_ids=[0], start_position=0, block_table=BlockTable([DUMMY_BLOCK]), logit_rows=1
    )
    return Step(kind=shape.kind, rows=[row])


def check_blocks(limits: Limits) -> int:
    """How many KV blocks, from block 1 up, context_steps and known_answer_step write to."""
    return _sequences(limits.max_batch_size, limits)


def longest_context(limits: Limits) -> int:
    """Positions of the longest context; 0 if there is room for none."""
    return max(_context_length(sequence, limits) for sequence in range(check_blocks(limits)))


def context_steps(limits: Limits, *, tokens: int, sequences: int) -> Iterator[Step]:
    """Prefill the contexts that known_answer_step continues, one block for each sequence, in steps
    of at most `tokens` tokens of `sequences` sequences; `tokens` is the longest context at least.
    """
    rows: list[StepRow] = []
    for sequence in range(check_blocks(limits)):
        length = _context_length(sequence, limits)
        row = _row(sequence, start=0, count=length, limits=limits)
        if len(rows) == sequences or sum(len(r.token_ids) for r in (*rows, row)) > tokens:
            yield Step(kind=StepKind.PREFILL, rows=rows)
            rows = []
        rows.append(row)
    yield Step(kind=StepKind.PREFILL, rows=rows)


def writes_contexts(step: Step, limits: Limits) -> bool:
    """Whether a prefill bucket's known-answer step writes all of the contexts, and maybe more."""
    written = [len(row.token_ids) for row in step.rows]
    wanted = [_context_length(sequence, limits) for sequence in range(check_blocks(limits))]
    return len(written) >= len(wanted) and all(map(operator.ge, written, wanted))


def known_answer_step(shape: StepShape, limits: Limits) -> Step:
    """A step that fills a bucket as far as the KV cache allows.

    Sequences have different tokens and lengths, so that a graph that mixes them up, or remembers
    those of its capture, gives other logits than eager execution. A prefill overwrites the
    contexts; decode and verify leave them as they are. Blocks are those of check_blocks, from
    block 1 up: no request may have KV in them.
    """
    sequences = _sequences(shape.sequences, limits)
    count = min(max(1, shape.tokens // shape.sequences), limits.block_size)
    shift = _shift(shape)
    rows = []
    for sequence in range(sequences):
        start = 0 if shape.kind is StepKind.PREFILL else _context_length(sequence, limits)
        room = limits.block_size - start
        tokens = min(count, room)
        logits = 1 if shape.kind is StepKind.PREFILL else tokens
        rows.append(
            _row(sequence, start=start, count=tokens, limits=limits, logits=logits, shift=shift)
        )
    return Step(kind=shape.kind, rows=rows)


def _shift(shape: StepShape) -> int:
    """Of a bucket's tokens: another one for each, if the vocabulary has more than three times as
    many tokens as the largest step. A graph that does not read its inputs, or does not write its
    keys and values, would else find those of another bucket's step, and give the right answer."""
    return 3 * shape.tokens + _KINDS.index(shape.kind)


def _sequences(wanted: int, limits: Limits) -> int:
    return max(1, min(wanted, limits.blocks))


def _context_length(sequence: int, limits: Limits) -> int:
    # Up to 4 tokens are enough for lengths to differ; one position stays free for the step.
    return min(1 + sequence % 4, limits.block_size - 1)


def _row(
    sequence: int, *, start: int, count: int, limits: Limits, logits: int = 0, shift: int = 0
) -> StepRow:
    # Any fixed tokens do, as long as sequences and positions differ: primes spread them.
    tokens = [
        (7919 * (sequence + 1) + 104729 * (start + i) + shift) % limits.vocabulary
        for i in range(count)
    ]
    return StepRow(
        token_ids=tokens,
        slot=sequence,
        start_position=start,
        block_table=BlockTable([sequence + 1]),
        logit_rows=logits,
        draw=StepDraw() if logits else None,
    )
