"""The toy model on a device that takes steps ahead and draws tokens itself, as a GPU does."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np

from tests.engine.toy import ToyExecutor
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.sampling.cpu import draw_token
from warmgraph_engine.sampling.device import SlotScores
from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.step import (
    PENDING_TOKEN,
    Limits,
    Step,
    StepDraw,
    StepResult,
)


class ToyDevice(ToyExecutor):
    """Runs nothing before somebody waits for it, and then everything in the order in which it was
    handed over: what a step needs and does not bring along is gone by then."""

    def __init__(self, facts: Limits, *, habit: float = 0.0) -> None:
        super().__init__(facts, habit=habit)
        self.most_ahead = 0
        """Steps that the device had, at most, when one was handed over."""
        self._queue: deque[tuple[Step, ToyLogits]] = deque()
        shape = (facts.max_batch_size, facts.vocabulary)
        self._bias, self._counts = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        self._in_prompt = np.zeros(shape, bool)

    def execute(self, step: Step) -> StepResult:
        for row in step.rows:
            assert PENDING_TOKEN not in row.token_ids or len(row.token_ids) == 1
            assert row.draw is None or row.logit_rows > 0
        # As the input buffers do: a block table grows when the next step is planned.
        rows = [
            msgspec.structs.replace(row, block_table=BlockTable(row.block_table))
            for row in step.rows
        ]
        logits = ToyLogits(self)
        self._queue.append((Step(kind=step.kind, rows=rows), logits))
        self.most_ahead = max(self.most_ahead, len(self._queue))
        return self._result(logits)

    def run_up_to(self, wanted: ToyLogits) -> None:
        while wanted.drawn_tokens is None:
            step, logits = self._queue.popleft()
            logits.rows = super().execute(step).logits
            logits.drawn_tokens = self._draw(step, logits)

    @property
    def idle(self) -> bool:
        """No step waits: the logits of the last one are still there."""
        return not self._queue

    def _draw(self, step: Step, logits: ToyLogits) -> list[int]:
        drawn = [0] * self.limits.max_batch_size
        end = 0
        for row in step.rows:
            end += row.logit_rows
            if row.draw is not None:
                raw = logits.rows[end - 1]
                token = drawn_from(raw, row.draw, self._changed(raw, row.slot, row.draw))
                drawn[row.slot] = token
                self.last_drawn[row.slot] = max(token, 0)
                if params_of(row.draw).penalized:
                    self._counts[row.slot, token] += 1
                if row.draw.alternatives is not None and token >= 0:
                    logits.scored[row.slot] = _scores(raw, token)
        return drawn

    def _changed(self, raw: np.ndarray, slot: int, draw: StepDraw) -> np.ndarray:
        """With what is kept for the slot, which others have had before."""
        if draw.bias is not None:
            self._bias[slot] = 0
            for token, bias in draw.bias.items():
                self._bias[slot, token] = bias
        if draw.counts is not None:
            self._counts[slot] = np.bincount(draw.counts.output, minlength=raw.size)
            self._in_prompt[slot] = np.isin(np.arange(raw.size), draw.counts.prompt)
        row = raw + self._bias[slot] if draw.biased else raw.copy()
        if params_of(draw).penalized:
            counts, factor = self._counts[slot], np.float32(draw.repetition_penalty)
            seen = self._in_prompt[slot] | (counts > 0)
            row[seen] = np.where(row > 0, row / factor, row * factor)[seen]
            penalty = draw.presence_penalty + draw.frequency_penalty * counts
            row[counts > 0] -= penalty.astype(np.float32)[counts > 0]
        return row


def _scores(raw: np.ndarray, token: int) -> SlotScores:
    largest = raw.max()
    order = np.lexsort((np.arange(raw.size), -raw))
    return SlotScores(
        logit=float(raw[token]),
        largest=float(largest),
        mass=float(np.exp(raw - largest).sum(dtype=np.float64)),
        best=[(int(each), float(raw[each])) for each in order],
    )


class ToyLogits:
    """The StepLogits of sampling/device.py."""

    def __init__(self, device: ToyDevice) -> None:
        self._device = device
        self.rows = np.empty((0, 0), dtype=np.float32)
        self.drawn_tokens: list[int] | None = None
        self.scored: dict[int, SlotScores] = {}

    def drawn(self) -> Sequence[int]:
        self._device.run_up_to(self)
        assert self.drawn_tokens is not None
        return self.drawn_tokens

    def scores(self, slot: int, alternatives: int) -> SlotScores:
        self.drawn()
        found = self.scored[slot]
        return msgspec.structs.replace(found, best=found.best[:alternatives])

    def on_host(self, rows: Sequence[int]) -> np.ndarray:
        self._device.run_up_to(self)
        assert self._device.idle, "a later step overwrites its logits"
        return self.rows[list(rows)].copy()


def drawn_from(raw: np.ndarray, draw: StepDraw, row: np.ndarray) -> int:
    """The token that a step draws from `raw` as changed to `row`; -1 if it cannot."""
    if not np.isfinite(raw.max()):
        return -1
    if not draw.scale:
        return int(row.argmax())
    return draw_token(row, params_of(draw), draw.number, scratch=np.empty_like(row))


def params_of(draw: StepDraw) -> SamplingParams:
    return SamplingParams(
        max_tokens=1,
        temperature=1 / draw.scale if draw.scale else 0.0,
        top_k=draw.top_k,
        top_p=draw.top_p,
        min_p=draw.min_p,
        repetition_penalty=draw.repetition_penalty,
        presence_penalty=draw.presence_penalty,
        frequency_penalty=draw.frequency_penalty,
    )
