"""A scheduled step: what the executor runs, and what becomes of its logits."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import msgspec

from warmgraph_api.report import StepKind
from warmgraph_engine.sampling.sampler import Draw
from warmgraph_engine.scheduler.sequence import Sequence
from warmgraph_engine.step import PENDING_TOKEN, Step, StepDraw, StepRow


class PlannedRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The positions from `start` up to and without `end` of one sequence."""

    sequence: Sequence
    start: int
    end: int
    scored_from: int
    """First position whose logits are read: for prompt log-probabilities, or the last one when a
    token is drawn. Equal to `end` if no logits are needed."""
    draws: bool
    """A token is drawn after the last position."""
    position: int
    """How many tokens of the output come before the drawn one."""

    @property
    def logit_rows(self) -> int:
        return self.end - self.scored_from


class Plan(msgspec.Struct, frozen=True, gc=False):
    kind: StepKind
    rows: Seq[PlannedRow]

    def draws(self) -> list[Draw | None]:
        """For each row, the token to be drawn from its last logits."""
        draws: list[Draw | None] = []
        logit_rows = 0
        for row in self.rows:
            logit_rows += row.logit_rows
            sequence = row.sequence
            draws.append(
                Draw(logit_rows - 1, sequence, row.position, sequence.slot) if row.draws else None
            )
        return draws

    def step(self, in_step: Seq[StepDraw | None]) -> Step:
        """With the draws that the step itself makes, one or none for each row."""
        return Step(
            kind=self.kind,
            rows=[
                StepRow(
                    # Only a row's single last token can be one that was not read yet.
                    token_ids=row.sequence.tokens[row.start : row.end] or [PENDING_TOKEN],
                    slot=row.sequence.slot,
                    start_position=row.start,
                    block_table=row.sequence.blocks,
                    logit_rows=row.logit_rows,
                    draw=draw,
                )
                for row, draw in zip(self.rows, in_step, strict=True)
            ],
        )
