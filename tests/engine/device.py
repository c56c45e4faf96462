"""The toy model on a device that takes steps ahead and draws tokens itself, as a GPU does."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np

from tests.engine.toy import ToyExecutor
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.sampling.cpu import draw_token
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
            logits.drawn_tokens = self._draw(step, logits.rows)

    @property
    def idle(self) -> bool:
        """No step waits: the logits of the last one are still there."""
        return not self._queue

    def _draw(self, step: Step, logits: np.ndarray) -> list[int]:
        drawn = [0] * self.limits.max_batch_size
        end = 0
        for row in step.rows:
            end += row.logit_rows
            if row.draw is not None:
                drawn[row.slot] = drawn_from(logits[end - 1], row.draw)
                self.last_drawn[row.slot] = max(drawn[row.slot], 0)
        return drawn


class ToyLogits:
    """The StepLogits of sampling/device.py."""

    def __init__(self, device: ToyDevice) -> None:
        self._device = device
        self.rows = np.empty((0, 0), dtype=np.float32)
        self.drawn_tokens: list[int] | None = None

    def drawn(self) -> Sequence[int]:
        self._device.run_up_to(self)
        assert self.drawn_tokens is not None
        return self.drawn_tokens

    def on_host(self, rows: Sequence[int]) -> np.ndarray:
        self._device.run_up_to(self)
        assert self._device.idle, "a later step overwrites its logits"
        return self.rows[list(rows)].copy()


def drawn_from(row: np.ndarray, draw: StepDraw) -> int:
    """The token that a step draws; -1 if it cannot."""
    if not np.isfinite(row.max()):
        return -1
    if not draw.scale:
        return int(row.argmax())
    params = SamplingParams(
        max_tokens=1,
        temperature=1 / draw.scale,
        top_k=draw.top_k,
        top_p=draw.top_p,
        min_p=draw.min_p,
    )
    return draw_token(row, params, draw.number, scratch=np.empty_like(row))
