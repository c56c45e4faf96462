"""Whatever arrives, leaves and ends, and whenever: the schedule stays sound and moves forward."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.harness import sequence
from tests.engine.toy import limits
from warmgraph_api.report import StepKind
from warmgraph_engine.kv import DUMMY_BLOCK, BlockTable, blocks_for
from warmgraph_engine.sampling.sampler import SampledToken
from warmgraph_engine.scheduler.scheduler import Scheduler
from warmgraph_engine.step import PENDING_TOKEN

FACTS = limits(blocks=12, block_size=4, max_batch_size=4, max_batch_tokens=9)
STOP = 9
POSITIONS = FACTS.blocks * FACTS.block_size


class Schedule(RuleBasedStateMachine):
    """Tokens are read as soon as they are drawn."""

    ahead = 0
    speculative_tokens = 0

    def __init__(self):
        super().__init__()
        self.unread = deque()
        self.scheduler = Scheduler(FACTS, speculative_tokens=self.speculative_tokens)
        self.alive = []
        self.prefilled_last = None

    @rule(prompt=st.integers(1, 30), output=st.integers(1, 18), scored=st.booleans())
    def arrive(self, prompt, output, scored):
        assert prompt + output <= POSITIONS  # what validation lets through
        new = sequence(
            [1] * prompt,
            max_tokens=output,
            prompt_logprobs=1 if scored else None,
            stop_token_ids=frozenset({STOP}),
        )
        self.alive.append(new)
        self.scheduler.add(new)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data):
        self.scheduler.remove([self.alive.pop(data.draw(st.integers(0, len(self.alive) - 1)))])

    @rule()
    def step(self):
        self.take_turn()

    @precondition(lambda self: self.alive)
    @rule()
    def finish_all(self):
        """No livelock: as many turns as there are tokens, and some for preemptions, are enough."""
        turns = 0
        while self.alive:
            self.take_turn()
            turns += 1
            assert turns < 5000

    def take_turn(self):
        before = {s.id: s.computed for s in self.alive}
        both = any(s.prefilling for s in self.scheduler.running) and any(
            not s.prefilling for s in self.scheduler.running
        )
        plan = self.scheduler.schedule()
        assert self.alive == [] or plan or self.unread, "work is left, but no step"
        kept = len(self.unread) - 1
        if plan is not None:
            self.check(plan, before, both)
            self.unread.append(plan)
            kept = 0 if plan.kind is StepKind.VERIFY else self.ahead
        while len(self.unread) > max(0, kept):
            self.read(self.unread.popleft())

    def check(self, plan, before, both):
        if both and not self.ahead and len(self.scheduler.running) == len(self.alive):
            alternates = (plan.kind is StepKind.PREFILL) is not self.prefilled_last
            assert alternates or self.scheduler.preemptions
        self.prefilled_last = plan.kind is StepKind.PREFILL
        step = plan.step([None] * len(plan.rows))
        assert 0 < len(step.rows) <= FACTS.max_batch_size
        if plan.kind is StepKind.PREFILL:
            assert step.tokens <= FACTS.max_batch_tokens
        for row, planned in zip(step.rows, plan.rows, strict=True):
            assert (plan.kind is StepKind.DECODE) <= (len(row.token_ids) == row.logit_rows == 1)
            assert (plan.kind is StepKind.VERIFY) <= (len(row.token_ids) == row.logit_rows)
            assert len(planned.drafts) <= (plan.kind is StepKind.VERIFY) * self.speculative_tokens
            assert planned.start == before[planned.sequence.id] or planned.start == 0
            assert planned.end <= len(row.block_table) * FACTS.block_size
            assert not planned.sequence.ended
            longest = planned.sequence.prompt_length + planned.sequence.params.max_tokens - 1
            assert planned.end <= longest, "a token is computed that nothing can follow"
            earlier = planned.sequence.pending - planned.drawn
            assert (earlier > 0) == (PENDING_TOKEN in row.token_ids)
            assert earlier <= self.ahead
        assert (plan.kind is StepKind.VERIFY) == any(planned.drafts for planned in plan.rows)
        assert len({row.slot for row in step.rows}) == len(step.rows)

    def read(self, plan):
        for planned in plan.rows:
            sequence = planned.sequence
            if sequence.ended or not planned.draws:
                continue
            kept = planned.commit([self.drawn(sequence, planned, n) for n in range(planned.drawn)])
            if planned.drafts:
                self.scheduler.reject(sequence, planned.drawn - len(kept))
            if kept[-1][1] is not None:
                self.scheduler.remove([sequence])
                self.alive.remove(sequence)

    def drawn(self, sequence, planned, number):
        """Mostly what repeats, so that drafts are made, kept and rejected."""
        position = planned.position + number
        if sequence.prompt_length % 3 == 0 and position == 2:
            return SampledToken(STOP)
        return SampledToken(8 if position % 5 == sequence.id % 5 else 7)

    @invariant()
    def blocks_are_held_once_and_by_running_sequences_only(self):
        held = [block for s in self.alive for block in s.blocks]
        assert len(held) == len(set(held)) == self.scheduler.pool.used
        assert DUMMY_BLOCK not in held
        for s in self.scheduler.waiting:
            assert (s.blocks, s.computed) == (BlockTable(), 0)
        for s in self.scheduler.running:
            held = max(s.computed, s.prefill_end)
            assert len(s.blocks) == blocks_for(held, FACTS.block_size), "drafts leave nothing"

    @invariant()
    def each_sequence_waits_or_runs_in_order_of_arrival(self):
        waiting, running = self.scheduler.waiting, self.scheduler.running
        assert sorted(s.id for s in waiting + running) == sorted(s.id for s in self.alive)
        for queue in (waiting, running):
            assert [s.id for s in queue] == sorted(s.id for s in queue)
        assert len(running) <= FACTS.max_batch_size


class ScheduleAhead(Schedule):
    """Tokens are read one step late, as with run-ahead."""

    ahead = 1


class ScheduleFarAhead(Schedule):
    """Two steps late."""

    ahead = 2


class ScheduleWithDrafts(Schedule):
    """Text that often repeats, with speculative decoding."""

    speculative_tokens = 3


class ScheduleFarAheadWithDrafts(ScheduleWithDrafts):
    """Where no step has them, tokens are read two steps late."""

    ahead = 2


BOUNDS = settings(deadline=None, max_examples=60, stateful_step_count=30)
for machine in (
    Schedule,
    ScheduleAhead,
    ScheduleFarAhead,
    ScheduleWithDrafts,
    ScheduleFarAheadWithDrafts,
):
    machine.TestCase.settings = BOUNDS
TestSchedule = Schedule.TestCase
TestScheduleAhead = ScheduleAhead.TestCase
TestScheduleFarAhead = ScheduleFarAhead.TestCase
TestScheduleWithDrafts = ScheduleWithDrafts.TestCase
TestScheduleFarAheadWithDrafts = ScheduleFarAheadWithDrafts.TestCase
