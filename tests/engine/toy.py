"""A tiny language model that depends on everything a real one depends on.

It stores each token and its position in a paged KV store, and derives the next token's logits from
a checksum of the whole history *as read back through the block table*. A wrong block, a wrong
position, a missing or a foreign entry changes the checksum, and with it every later token.

With a habit it likes to go round in circles of CIRCLE tokens, so that its text can be drafted; it
still leaves them wherever the checksum says so.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from warmgraph_api.report import StepKind
from warmgraph_engine.kv import DUMMY_BLOCK
from warmgraph_engine.step import (
    PENDING_TOKEN,
    Limits,
    Path,
    PathReason,
    Step,
    StepError,
    StepResult,
    StepRow,
    StepTiming,
)

CIRCLE = 5


def limits(**changes: int) -> Limits:
    values = {
        "vocabulary": 64,
        "block_size": 4,
        "blocks": 64,
        "max_model_length": 128,
        "max_batch_size": 8,
        "max_batch_tokens": 16,
    }
    return Limits(**(values | changes))


class ToyExecutor:
    """See the module. Also checks every step against the contract of `step.Executor`."""

    def __init__(self, facts: Limits, *, habit: float = 0.0) -> None:
        self.limits = facts
        self.habit = habit
        self.steps: list[Step] = []
        self.before_step: Callable[[Step], None] = lambda step: None
        self.fail_at: int | None = None
        self.nan_at: int | None = None
        self.timing: StepTiming | None = None
        """Of every step."""
        self.idle_calls = 0
        self.gate = threading.Event()
        """Steps wait for it: tests close it to hold the engine still."""
        self.gate.set()
        # Token and position of each slot; -1 stands for whatever an unwritten slot may hold.
        self.last_drawn = np.full(facts.max_batch_size, -1, dtype=np.int64)
        """By slot: what PENDING_TOKEN stands for. Written by ToyDevice."""
        self._store = np.full((facts.blocks + 1, facts.block_size, 2), -1, dtype=np.int64)

    def execute(self, step: Step) -> StepResult:
        self.gate.wait()
        self.before_step(step)
        self.steps.append(step)
        self._check(step)
        if self.fail_at == len(self.steps):
            raise StepError("device lost")
        logits = [self._row_logits(row) for row in step.rows]
        joined = np.concatenate([*logits, np.empty((0, self.limits.vocabulary))], dtype=np.float32)
        if self.nan_at == len(self.steps):
            joined[0, 3] = np.nan
        return self._result(joined)

    def _result(self, logits: Any) -> StepResult:
        return StepResult(
            logits=logits,
            path=Path.EAGER,
            reason=PathReason.NO_BUCKET,
            bucket=0,
            timing=self.timing,
        )

    def idle_work_due(self, *, busy: bool) -> bool:
        self.idle_calls += 1
        return False

    def idle_work(self, *, busy: bool) -> bool:
        raise AssertionError("it was not due")

    def _check(self, step: Step) -> None:
        assert 0 < len(step.rows) <= self.limits.max_batch_size
        if step.kind is StepKind.PREFILL:
            assert step.tokens <= self.limits.max_batch_tokens
        blocks = [block for row in step.rows for block in row.block_table]
        assert len(blocks) == len(set(blocks)), "two rows share a KV block"
        assert DUMMY_BLOCK not in blocks
        for row in step.rows:
            if step.kind is StepKind.DECODE:
                assert len(row.token_ids) == 1
                assert row.logit_rows == 1
            if step.kind is StepKind.VERIFY:
                assert row.logit_rows == len(row.token_ids)
                assert PENDING_TOKEN not in row.token_ids
            assert 0 <= row.logit_rows <= len(row.token_ids)
            end = row.start_position + len(row.token_ids)
            assert end <= self.limits.max_model_length
            assert end <= len(row.block_table) * self.limits.block_size
            tokens = self._tokens(row)
            assert all(0 <= token < self.limits.vocabulary for token in tokens)
        slots = [row.slot for row in step.rows]
        assert len(slots) == len(set(slots)), "two rows share a slot"
        assert all(0 <= slot < self.limits.max_batch_size for slot in slots)

    def _row_logits(self, row: StepRow) -> np.ndarray:
        for offset, token in enumerate(self._tokens(row)):
            position = row.start_position + offset
            self._store[self._slot(row, position)] = (token, position)
        end = row.start_position + len(row.token_ids)
        rows = [
            toy_logits(self._history(row, position + 1), self.limits.vocabulary, self.habit)
            for position in range(end - row.logit_rows, end)
        ]
        return np.array(rows, dtype=np.float32).reshape(row.logit_rows, self.limits.vocabulary)

    def _tokens(self, row: StepRow) -> list[int]:
        drawn = int(self.last_drawn[row.slot])
        return [drawn if token == PENDING_TOKEN else token for token in row.token_ids]

    def _history(self, row: StepRow, length: int) -> np.ndarray:
        return self._store[list(row.block_table)].reshape(-1, 2)[:length]

    def _slot(self, row: StepRow, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self.limits.block_size)
        return row.block_table[block], offset


def toy_logits(history: np.ndarray, vocabulary: int, habit: float = 0.0) -> np.ndarray:
    """float32 logits after a history of (token, position) pairs."""
    checksum = zlib.crc32(np.ascontiguousarray(history, dtype=np.int64).tobytes())
    generator = np.random.Generator(np.random.Philox(key=checksum))
    logits = generator.standard_normal(vocabulary, dtype=np.float32) * 3
    circle, place = divmod(int(history[-1, 0]), CIRCLE)
    logits[(circle * CIRCLE + (place + 1) % CIRCLE) % vocabulary] += np.float32(habit)
    return logits


def toy_logits_of(tokens: list[int], vocabulary: int = 64) -> np.ndarray:
    """The logits that the toy model gives after these tokens, without any KV store."""
    return toy_logits(np.array(list(zip(tokens, range(len(tokens)), strict=True))), vocabulary)
