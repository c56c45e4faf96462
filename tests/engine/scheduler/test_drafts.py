"""Which drafts become part of a step, and what is left of them afterwards."""

from __future__ import annotations

from tests.engine.harness import sequence
from tests.engine.toy import limits
from warmgraph_api.report import StepKind
from warmgraph_engine.kv import blocks_for
from warmgraph_engine.sampling.sampler import SampledToken
from warmgraph_engine.scheduler.scheduler import Scheduler
from warmgraph_engine.scheduler.sequence import FinishReason

DECODE, PREFILL, VERIFY = StepKind.DECODE, StepKind.PREFILL, StepKind.VERIFY

REPEATS = [1, 2, 3, 4, 5, 6, 1, 2]
"""A token 3 after it is followed by drafts 4, 5, 6, 1."""


def step_rows(plan):
    """What the device gets of it."""
    return plan.step([None] * len(plan.rows)).rows


def scheduler(*sequences, tokens=4, **changes):
    created = Scheduler(limits(**changes), speculative_tokens=tokens)
    for each in sequences:
        created.add(each)
    return created


def turn(target: Scheduler, *drawn: list[int]):
    """One step; row by row what is drawn in it. Returns the plan and what each row kept."""
    plan = target.schedule()
    assert plan is not None
    kept = []
    drawing = [row for row in plan.rows if row.draws]
    for row, tokens in zip(drawing, drawn, strict=True):
        assert len(tokens) == row.drawn
        kept.append(row.commit([SampledToken(token) for token in tokens]))
        if row.drafts:
            target.reject(row.sequence, row.drawn - len(kept[-1]))
        if kept[-1][-1][1] is not None:
            target.remove([row.sequence])
    return plan, [[token.token_id for token, _ in each] for each in kept]


def test_a_text_that_repeats_is_verified_and_one_that_does_not_is_decoded():
    one = sequence(REPEATS, max_tokens=50)
    target = scheduler(one)
    assert turn(target, [3])[0].kind is PREFILL
    plan, kept = turn(target, [4, 5, 9, 0, 0])
    assert plan.kind is VERIFY
    [row] = step_rows(plan)
    assert row.token_ids == [3, 4, 5, 6, 1]
    assert (row.start_position, row.logit_rows) == (8, 5)
    assert kept == [[4, 5, 9]]
    assert one.tokens == [*REPEATS, 3, 4, 5, 9]
    plan, _ = turn(target, [7])
    assert plan.kind is DECODE
    assert step_rows(plan)[0].token_ids == [9]
    assert step_rows(plan)[0].start_position == 11


def test_a_draft_that_is_right_to_its_end_brings_one_token_more():
    one = sequence(REPEATS, max_tokens=50)
    target = scheduler(one)
    turn(target, [3])
    assert turn(target, [4, 5, 6, 1, 8])[1] == [[4, 5, 6, 1, 8]]
    assert one.computed == len(one.tokens) - 1


def test_a_wrong_first_draft_still_brings_its_token():
    one = sequence(REPEATS, max_tokens=50)
    target = scheduler(one)
    turn(target, [3])
    assert turn(target, [9, 5, 6, 1, 8])[1] == [[9]]
    assert one.computed == len(one.tokens) - 1


def test_one_verify_step_serves_those_with_drafts_and_those_without():
    prompts = [REPEATS, [9, 8, 7], [8, 8, 8]]
    target = scheduler(*(sequence(p, max_tokens=50) for p in prompts), max_batch_tokens=30)
    turn(target, [3], [6], [8])
    plan, kept = turn(target, [4, 0, 0, 0, 0], [5], [8, 8, 8, 8, 8])
    assert plan.kind is VERIFY
    assert [row.token_ids for row in step_rows(plan)] == [
        [3, 4, 5, 6, 1],
        [6],
        [8] * 5,
    ]
    assert kept == [[4, 0], [5], [8] * 5]


def test_no_more_is_drafted_than_the_output_may_have():
    one = sequence(REPEATS, max_tokens=4)  # after the first, 3: drafts for 2, and what follows
    target = scheduler(one)
    turn(target, [3])
    plan, kept = turn(target, [4, 5, 6])
    assert step_rows(plan)[0].token_ids == [3, 4, 5]
    assert kept == [[4, 5, 6]]
    assert plan.rows[0].end <= one.prompt_length + one.params.max_tokens - 1
    assert target.schedule() is None


def test_the_last_token_of_an_output_is_decoded_without_drafts():
    one = sequence(REPEATS, max_tokens=2)
    target = scheduler(one)
    turn(target, [3])
    assert turn(target, [4])[0].kind is DECODE


def test_a_stop_token_inside_an_accepted_run_ends_the_output_there():
    one = sequence(REPEATS, max_tokens=50, stop_token_ids=frozenset({5}))
    target = scheduler(one)
    turn(target, [3])
    plan, kept = turn(target, [4, 5, 6, 1, 8])
    assert kept == [[4, 5]]
    assert plan.rows[0].sequence.tokens[-1] == 5
    assert target.pool.used == 0


def test_drafts_take_free_blocks_and_leave_rejected_ones_at_once():
    one = sequence(REPEATS, max_tokens=50)
    target = scheduler(one, block_size=2, blocks=10)
    turn(target, [3])
    assert len(one.blocks) == 4
    plan, _ = turn(target, [4, 9, 0, 0, 0])
    assert len(plan.rows[0].drafts) == 4
    assert len(one.blocks) == blocks_for(one.computed, 2) == 5


def test_drafts_end_where_free_blocks_do():
    one = sequence(REPEATS, max_tokens=9)
    target = scheduler(one, block_size=2, blocks=8)
    turn(target, [3])
    target.pool.allocate(3)  # whoever holds them
    plan, _ = turn(target, [4, 0])
    assert step_rows(plan)[0].token_ids == [3, 4]
    assert target.pool.free == 0


def test_nobody_is_preempted_for_a_draft():
    first = sequence(REPEATS, max_tokens=9)
    second = sequence([9, 8, 7, 6, 5, 4, 3, 2], max_tokens=9)
    target = scheduler(first, second, block_size=2, blocks=10)
    turn(target, [3], [1])
    plan, _ = turn(target, [4, 0], [0])
    assert step_rows(plan)[0].token_ids == [3, 4], "only what the last block of its own holds"
    assert target.preemptions == 0
    assert len(second.blocks) == 5


def test_a_draft_never_takes_the_block_that_a_later_sequence_needs_in_this_step():
    first = sequence(REPEATS, max_tokens=9)
    second = sequence([9, 8, 7, 6, 5, 4, 3, 2], max_tokens=9)
    target = scheduler(first, second, block_size=2, blocks=11)
    turn(target, [3], [1])
    plan, _ = turn(target, [4, 5, 0, 0], [0])
    assert [row.token_ids for row in step_rows(plan)] == [[3, 4, 5, 6], [1]]
    assert target.preemptions == 0


def test_prompt_chunks_and_verify_steps_alternate():
    stream, long = sequence([1, 2] * 4, max_tokens=60), sequence([7] * 60)
    target = scheduler(stream, max_batch_tokens=8, blocks=100)
    turn(target, [1])
    target.add(long)
    kinds = []
    for _ in range(6):
        if target.running[-1].prefilling or long in target.waiting:
            plan = target.schedule()
            kinds.append(plan.kind)
            if plan.kind is VERIFY:
                [row] = plan.rows
                row.commit([SampledToken(0)] * row.drawn)
                target.reject(stream, row.drawn - 1)
                stream.tokens[-1] = stream.tokens[-3]  # keeps repeating
    assert kinds == [VERIFY, PREFILL] * 3 or kinds == [PREFILL, VERIFY] * 3


def test_a_preempted_sequence_drafts_again_from_its_whole_text():
    one = sequence(REPEATS, max_tokens=20)
    target = scheduler(one, blocks=20)
    turn(target, [3])
    turn(target, [4, 5, 9, 0, 0])
    target.running.remove(one)  # as _grow does
    target._free(one)
    target.add(one)
    assert turn(target, [1])[0].kind is PREFILL
    plan, _ = turn(target, [2])
    assert plan.kind is DECODE, "9, 1 was not seen before"
    plan, _ = turn(target, [3, 4, 5, 9, 1])
    assert plan.kind is VERIFY
    assert step_rows(plan)[0].token_ids == [2, 3, 4, 5, 9]


def test_only_the_last_token_kept_can_end_the_output():
    one = sequence(REPEATS, max_tokens=4)
    target = scheduler(one)
    turn(target, [3])
    plan = target.schedule()
    kept = plan.rows[0].commit([SampledToken(token) for token in (4, 5, 6)])
    assert [finish for _, finish in kept] == [None, None, FinishReason.LENGTH]
