"""A scheduled step: what the executor runs, and what becomes of its logits."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from itertools import accumulate

import msgspec

from warmgraph_api.report import StepKind
from warmgraph_engine.sampling.sampler import Draw, SampledToken
from warmgraph_engine.scheduler.sequence import FinishReason, Sequence
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
    """A token is drawn after the last position, and after each that a draft follows."""
    position: int
    """How many tokens of the output come before the first one drawn."""
    drafts: tuple[int, ...] = ()
    """Tokens that may come to lie at the last positions, behind the sequence's own."""

    @property
    def logit_rows(self) -> int:
        return self.end - self.scored_from

    def token_ids(self) -> Seq[int]:
        known = self.sequence.tokens[self.start : self.end - len(self.drafts)]
        # Only a row's single last token can be one that was not read yet; nobody drafts after it.
        return [*known, *self.drafts] or [PENDING_TOKEN]

    @property
    def drawn(self) -> int:
        """How many tokens are drawn."""
        return 1 + len(self.drafts) if self.draws else 0

    def draws_up_to(self, end_row: int) -> list[Draw]:
        """The tokens to draw, where the row's logits end before `end_row` of the step's."""
        if self.draws and not self.drafts:  # in a decode step of many sequences, for each
            new = self.start < self.sequence.prefill_end
            return [Draw(end_row - 1, self.sequence, self.position, self.sequence.slot, new)]
        first = end_row - self.drawn
        return [
            Draw(
                first + number,
                self.sequence,
                self.position + number,
                self.sequence.slot,
                drafts=self.drafts[:number],
                beside_drafts=bool(self.drafts),
            )
            for number in range(self.drawn)
        ]

    def commit(self, drawn: Seq[SampledToken]) -> list[tuple[SampledToken, FinishReason | None]]:
        """Give the sequence its tokens, up to the first that is not the draft at its place: the
        rows behind that one computed another text. The last one may end the output."""
        if len(drawn) == 1:
            return [(drawn[0], self.sequence.append(drawn[0].token_id))]
        kept: list[tuple[SampledToken, FinishReason | None]] = []
        for number, token in enumerate(drawn):
            finish = self.sequence.append(token.token_id)
            kept.append((token, finish))
            if finish is not None or self.drafts[number : number + 1] != (token.token_id,):
                break
        return kept


class Plan(msgspec.Struct, frozen=True, gc=False):
    kind: StepKind
    rows: Seq[PlannedRow]

    def draws(self) -> list[list[Draw]]:
        """For each row, the tokens to be drawn from its logits."""
        ends = accumulate(row.logit_rows for row in self.rows)
        return [row.draws_up_to(end) for row, end in zip(self.rows, ends, strict=True)]

    def step(self, in_step: Seq[StepDraw | None]) -> Step:
        """With the draws that the step itself makes, one or none for each row."""
        return Step(
            kind=self.kind,
            rows=[
                StepRow(
                    token_ids=row.token_ids(),
                    slot=row.sequence.slot,
                    start_position=row.start,
                    block_table=row.sequence.blocks,
                    logit_rows=row.logit_rows,
                    draw=draw,
                )
                for row, draw in zip(self.rows, in_step, strict=True)
            ],
        )
