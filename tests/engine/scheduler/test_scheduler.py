from __future__ import annotations

import pytest

from tests.engine.harness import sequence
from tests.engine.toy import limits
from warmgraph_api.report import StepKind
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.scheduler.scheduler import Scheduler

DECODE, PREFILL = StepKind.DECODE, StepKind.PREFILL


def scheduler(*sequences, **changes):
    created = Scheduler(limits(**changes))
    for each in sequences:
        created.add(each)
    return created


def turn(target: Scheduler):
    """One step in which every drawn token is 7; returns the plan."""
    plan = target.schedule()
    if plan is not None:
        for row in plan.rows:
            if row.draws and row.sequence.append(7):
                target.remove([row.sequence])
    return plan


def spans(plan):
    return [(row.sequence.id, row.start, row.end) for row in plan.rows]


def test_a_prompt_is_prefilled_in_chunks_and_only_the_last_one_draws():
    one = sequence([1] * 20)
    target = scheduler(one, max_batch_tokens=8)
    plans = [turn(target) for _ in range(4)]
    assert [plan.kind for plan in plans] == [PREFILL, PREFILL, PREFILL, DECODE]
    assert [spans(plan) for plan in plans] == [
        [(one.id, 0, 8)],
        [(one.id, 8, 16)],
        [(one.id, 16, 20)],
        [(one.id, 20, 21)],
    ]
    assert [plan.rows[0].draws for plan in plans] == [False, False, True, True]
    assert [plan.rows[0].logit_rows for plan in plans] == [0, 0, 1, 1]


def test_short_prompts_share_a_prefill_step_in_order_of_arrival():
    prompts = [sequence([1] * n) for n in (5, 4, 9)]
    target = scheduler(*reversed(prompts), max_batch_tokens=12)
    assert spans(turn(target)) == [
        (prompts[0].id, 0, 5),
        (prompts[1].id, 0, 4),
        (prompts[2].id, 0, 3),
    ]


def test_a_long_prompt_costs_running_streams_one_chunk_between_two_tokens():
    stream, long = sequence([1], max_tokens=50), sequence([1] * 80)
    target = scheduler(stream, max_batch_tokens=8, blocks=100)
    turn(target)
    target.add(long)
    kinds = [turn(target).kind for _ in range(20)]
    assert kinds == [DECODE, PREFILL] * 10 or kinds == [PREFILL, DECODE] * 10


def test_new_prompts_without_end_do_not_starve_running_streams():
    stream = sequence([1], max_tokens=30)
    target = scheduler(stream, max_batch_tokens=8, max_batch_size=4)
    turns = 0
    while stream.generated < 30:
        target.add(sequence([1] * 8, max_tokens=1))
        turn(target)
        turns += 1
    assert turns <= 60


def test_no_more_sequences_run_than_the_batch_holds():
    target = scheduler(*(sequence([1]) for _ in range(5)), max_batch_size=3)
    assert len(turn(target).rows) == 3
    assert (len(target.running), len(target.waiting)) == (3, 2)


def test_the_first_waiting_sequence_is_not_overtaken_by_smaller_ones():
    target = scheduler(sequence([1] * 20), blocks=8)
    turn(target)
    big, small = sequence([1] * 30), sequence([1])
    target.add(small)
    target.add(big)
    assert target.waiting[0].id < target.waiting[1].id
    turn(target)
    assert big in target.waiting
    assert small in target.waiting


def test_newcomers_leave_a_block_in_hand_for_each_that_runs():
    target = scheduler(sequence([1] * 8), sequence([1] * 8), blocks=5)
    turn(target)  # 2 + 2 blocks, 1 left for the one that runs first
    assert len(target.running) == 2
    target = scheduler(sequence([1] * 8), sequence([1] * 8), blocks=4)
    turn(target)
    assert len(target.running) == 1


def test_under_pressure_the_latest_arrival_is_preempted_and_resumes_where_it_was():
    first, second = sequence([1] * 4, max_tokens=12), sequence([2] * 4, max_tokens=12)
    target = scheduler(first, second, blocks=4)
    while not second.preemptions:
        turn(target)
    assert first.preemptions == 0
    assert target.waiting == [second]
    assert (second.blocks, second.computed) == (BlockTable(), 0)
    generated = second.generated
    while target.running or target.waiting:
        turn(target)
    assert generated > 0
    assert (first.generated, second.generated) == (12, 12)
    assert target.pool.used == 0


def test_a_preempted_sequence_waits_for_the_tokens_that_are_on_their_way_to_it():
    first, second = sequence([1] * 4, max_tokens=12), sequence([2] * 4, max_tokens=12)
    target = scheduler(first, second, blocks=4)
    while not second.preemptions:  # nothing is read meanwhile
        assert target.schedule() is not None
    on_their_way = second.pending
    assert on_their_way > 0
    target.remove([first])
    assert target.schedule() is None, "there is room, but not all that it would have to compute"
    for _ in range(on_their_way):
        second.append(7)
    assert spans(target.schedule()) == [(second.id, 0, 4 + on_their_way)]


def test_the_latest_arrival_leaves_even_if_it_is_the_one_that_needs_the_block():
    first, second = sequence([1] * 7, max_tokens=9), sequence([2] * 4, max_tokens=8)
    target = scheduler(first, second, blocks=4, max_batch_tokens=2)
    order = []
    while second.generated < 8:
        turn(target)
        order.append((first.preemptions, second.preemptions))
    assert max(order)[0] == 0
    assert order[-1][1] > 0


def test_one_sequence_that_needs_the_whole_cache_runs_to_its_end():
    one = sequence([1] * 8, max_tokens=9)  # 16 positions: the last token is not fed back
    target = scheduler(one, blocks=4)
    while target.running or target.waiting:
        assert turn(target) is not None
    assert one.generated == 9
    assert one.preemptions == 0


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_a_cancelled_sequence_frees_its_blocks_at_once(turns):
    one, other = sequence([1] * 20), sequence([1] * 4, max_tokens=100)
    target = scheduler(one, other, max_batch_tokens=8)
    for _ in range(turns):
        turn(target)
    target.remove([one])
    target.remove([one])
    assert one not in target.running + target.waiting
    assert target.pool.used == len(other.blocks)


def test_nothing_to_do_is_no_step():
    target = scheduler()
    assert turn(target) is None
    target.add(sequence([1], max_tokens=1))
    assert turn(target) is not None
    assert turn(target) is None


def test_a_scored_prompt_takes_smaller_chunks_and_leaves_the_rest_to_others():
    scored, plain = sequence([1] * 100, prompt_logprobs=1), sequence([1] * 100)
    target = scheduler(scored, plain, max_batch_tokens=120, max_model_length=200)
    assert spans(turn(target)) == [(scored.id, 0, 64), (plain.id, 0, 56)]
    assert spans(turn(target)) == [(scored.id, 64, 100), (plain.id, 56, 100)]


def test_prompt_scores_need_the_logits_of_every_prompt_position_once():
    one = sequence([1] * 10, prompt_logprobs=1, max_tokens=2)
    target = scheduler(one, max_batch_tokens=4)
    plans = [turn(target) for _ in range(4)]
    assert [plan.rows[0].logit_rows for plan in plans] == [4, 4, 2, 1]
    scored = sequence([1] * 10, prompt_logprobs=1, max_tokens=0)
    target = scheduler(scored, max_batch_tokens=4)
    assert [turn(target).rows[0].draws for _ in range(3)] == [False, False, False]
