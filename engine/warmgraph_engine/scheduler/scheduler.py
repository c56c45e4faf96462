"""Continuous batching, first come first served, as a pure state machine.

Sequences wait, run and end; arrival decides every precedence. A step is either one decode token
of every running sequence or prompt chunks of at most `max_batch_tokens`. When both are to be
done they alternate, so that a long prompt costs running streams one chunk between two tokens,
never the whole prompt.

A sequence gets blocks for all it has to compute when it is admitted, and one more whenever its
output crosses into a new block. If none is free then, the latest arrival is preempted: its blocks
are freed and it is computed again later. The earliest arrival is never preempted for another,
and every accepted sequence fits the whole cache alone, so the engine always moves forward.

A step may be scheduled before the tokens of those before it are read (run-ahead). Positions are
then known and tokens are not: `pending` stands for them. Blocks and slots of a sequence that ended
may be given away at once, since the device runs steps in the order in which they are issued.

With speculative decoding, decode becomes verify as soon as one sequence has drafts: one step for
all, in which those without bring a single token. Two steps would read the weights twice. Drafts
take what is free and preempt nobody; between steps a sequence holds the blocks that it would hold
without them. They follow tokens that were read, so a step has none while one of its sequences waits
for a token: who runs ahead reads what there is as soon as the text read so far can be drafted on.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from operator import attrgetter

import msgspec

from warmgraph_api.report import StepKind
from warmgraph_engine.kv import BlockPool, BlockTable, blocks_for
from warmgraph_engine.scheduler.plan import Plan, PlannedRow
from warmgraph_engine.scheduler.sequence import Sequence
from warmgraph_engine.step import Limits

SCORED_CHUNK = 64
"""Most positions of a prompt scored in one step. Each needs a row of logits and a pass over it, a
quarter of a millisecond for 49,152 tokens on a CPU, and the running outputs wait meanwhile."""

_arrival = attrgetter("id")


class Scheduler:
    """Not thread-safe: everything is called from the engine thread."""

    def __init__(self, limits: Limits, *, speculative_tokens: int = 0) -> None:
        """`speculative_tokens` is the most drafts of a sequence in one step."""
        self._limits = limits
        self._speculative_tokens = speculative_tokens
        self.pool = BlockPool(limits.blocks)
        self._slots = list(reversed(range(limits.max_batch_size)))
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        """Both in order of arrival. Running sequences hold blocks, waiting ones none."""
        self.preemptions = 0
        self._prefilled_last = False

    def add(self, sequence: Sequence) -> None:
        insort(self.waiting, sequence, key=_arrival)

    def remove(self, sequences: Iterable[Sequence]) -> None:
        """Forget sequences that ended or were cancelled and free their blocks. Ones that are not
        known (any more) are passed over."""
        for sequence in sequences:
            sequence.ended = True
            if sequence in self.running:
                self.running.remove(sequence)
                self._free(sequence)
            elif sequence in self.waiting:
                self.waiting.remove(sequence)

    def schedule(self) -> Plan | None:
        """The next step, or None if there is nothing to do."""
        self._admit()
        first, second = self._prefill, self._decode
        if self._prefilled_last:
            first, second = second, first
        plan = first() or second()
        if plan is not None:
            for row in plan.rows:
                row.sequence.computed = row.end
                row.sequence.pending += row.drawn
            self._prefilled_last = plan.kind is StepKind.PREFILL
        return plan

    @property
    def can_draft(self) -> bool:
        """Whether something might follow what was read of a running sequence. If so, the next step
        is better planned when all is read; in a text that does not repeat that is seldom."""
        return bool(self._speculative_tokens) and any(
            not sequence.prefilling
            and sequence.draftable > 0
            and sequence.ngrams.draft(sequence.tokens, 1)
            for sequence in self.running
        )

    def reject(self, sequence: Sequence, count: int) -> None:
        """Take back the newest `count` positions: their drafts were not what the model said. What
        they left in the KV cache is overwritten when the true tokens are computed."""
        sequence.pending -= count
        sequence.computed -= count
        kept = blocks_for(sequence.computed, self._limits.block_size)
        self.pool.release(sequence.blocks[kept:])
        del sequence.blocks[kept:]

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._limits.max_batch_size:
            sequence = self.waiting[0]
            if sequence.pending:  # preempted; it is computed again with its newest tokens
                return
            needed = blocks_for(len(sequence.tokens), self._limits.block_size)
            # One block in hand for each running sequence: any of them may need one soon, and
            # would take it from the newcomer, whose prompt would then be computed in vain.
            if self.pool.free < needed + len(self.running):
                return
            self.waiting.pop(0)
            sequence.blocks = self.pool.allocate(needed)
            sequence.slot = self._slots.pop()
            sequence.prefill_end = len(sequence.tokens)
            sequence.admitted = True
            insort(self.running, sequence, key=_arrival)

    def _prefill(self) -> Plan | None:
        rows: list[PlannedRow] = []
        budget = self._limits.max_batch_tokens
        for sequence in self.running:
            if sequence.prefilling and budget > 0:
                row = _chunk(sequence, budget)
                budget -= row.end - row.start
                rows.append(row)
                if self._speculative_tokens:
                    # Chunk by chunk, so that a long prompt doesn't hold up the first decode step.
                    sequence.ngrams.note(sequence.tokens, row.end)
        return Plan(StepKind.PREFILL, rows) if rows else None

    def _decode(self) -> Plan | None:
        rows: list[PlannedRow] = []
        # A copy: _grow may preempt sequences behind the one at hand, which are then passed over.
        for sequence in list(self.running):
            if not sequence.blocks or not sequence.decodable or not self._grow(sequence):
                continue
            position = sequence.computed
            rows.append(
                PlannedRow(
                    sequence=sequence,
                    start=position,
                    end=position + 1,
                    scored_from=position,
                    draws=True,
                    position=position + 1 - sequence.prompt_length,
                )
            )
        if self._speculative_tokens and not any(row.sequence.pending for row in rows):
            rows = [self._with_drafts(row) for row in rows]  # after all have what they must have
        kind = StepKind.VERIFY if any(row.drafts for row in rows) else StepKind.DECODE
        return Plan(kind, rows) if rows else None

    def _with_drafts(self, row: PlannedRow) -> PlannedRow:
        """The row with as many drafts as there are, as the output may have, and as fit into free
        blocks."""
        sequence, size = row.sequence, self._limits.block_size
        most = min(
            self._speculative_tokens,
            sequence.draftable,
            (len(sequence.blocks) + self.pool.free) * size - row.end,
        )
        drafts = sequence.ngrams.draft(sequence.tokens, most)
        end = row.end + len(drafts)
        missing = max(0, blocks_for(end, size) - len(sequence.blocks))
        sequence.blocks += self.pool.allocate(missing)
        return msgspec.structs.replace(row, end=end, drafts=tuple(drafts))

    def _grow(self, sequence: Sequence) -> bool:
        """Make room for the next position, preempting later arrivals if need be. False if the
        sequence is the latest itself and had to leave."""
        if sequence.computed < len(sequence.blocks) * self._limits.block_size:
            return True
        needed = blocks_for(sequence.computed + 1, self._limits.block_size)
        missing = needed - len(sequence.blocks)
        while self.pool.free < missing:
            victim = self.running.pop()
            self._free(victim)
            victim.preemptions += 1
            self.preemptions += 1
            insort(self.waiting, victim, key=_arrival)
            if victim is sequence:
                return False
        sequence.blocks += self.pool.allocate(missing)
        return True

    def _free(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        self._slots.append(sequence.slot)
        sequence.blocks, sequence.slot = BlockTable(), -1
        sequence.computed = sequence.prefill_end = 0


def _chunk(sequence: Sequence, budget: int) -> PlannedRow:
    start = sequence.computed
    scored_end = sequence.prompt_length - 1
    to_score = sequence.params.prompt_logprobs is not None and sequence.prompt_scored < scored_end
    end = min(sequence.prefill_end, start + (min(budget, SCORED_CHUNK) if to_score else budget))
    draws = end == sequence.prefill_end and sequence.params.max_tokens > 0
    scored_from = end - 1 if draws else end
    if to_score and sequence.prompt_scored < end:
        # Logits at position p score token p + 1; the prompt's last position scores the output.
        scored_from = max(start, sequence.prompt_scored)
        sequence.prompt_scored = min(end, scored_end)
    return PlannedRow(
        sequence=sequence,
        start=start,
        end=end,
        scored_from=scored_from,
        draws=draws,
        position=end - sequence.prompt_length,
    )
