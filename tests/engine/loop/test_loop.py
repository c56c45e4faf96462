"""The engine thread's life: idle, woken, at fault, closed."""

from __future__ import annotations

import threading
import time

import pytest

from tests.engine.harness import (
    PATIENCE_SECONDS,
    Engine,
    once_closing,
    running_engine,
    sequence,
    started,
)
from tests.engine.toy import limits
from warmgraph_engine.inflight import InFlight
from warmgraph_engine.loop import EngineFaultError, OverloadedError
from warmgraph_engine.scheduler.sequence import FinishReason


def test_an_idle_engine_sleeps():
    with running_engine() as engine:
        engine.generate(sequence([1]))
        before, cpu = engine.executor.idle_calls, time.process_time()
        time.sleep(0.2)
        assert engine.executor.idle_calls - before <= 1
        assert time.process_time() - cpu < 0.1


def test_background_work_is_done_while_idle_until_there_is_none():
    left = 5
    done = threading.Event()

    def idle_work(*, busy):
        nonlocal left
        assert not busy
        left -= left > 0
        if not left:
            done.set()
        return left > 0

    engine = Engine()
    engine.executor.idle_work_due = lambda *, busy: True
    engine.executor.idle_work = idle_work
    engine.loop.start(engine.collect)
    assert done.wait(PATIENCE_SECONDS)
    done.clear()
    left = 3
    engine.loop.wake()
    assert done.wait(PATIENCE_SECONDS)
    engine.loop.close()


def test_background_work_is_offered_between_steps_and_told_that_requests_wait():
    calls = []
    engine = Engine()
    engine.executor.idle_work = lambda *, busy: calls.append(busy) and False
    engine.executor.idle_work_due = lambda *, busy: True
    only = sequence([1], max_tokens=4)
    engine.loop.submit([only])
    with started(engine):
        engine.wait([only])
    assert calls[:4] == [True, True, True, False]


def test_background_work_that_is_told_of_no_requests_finds_no_kv_block_in_use():
    used = []
    engine = Engine()
    pool = engine.loop._scheduler.pool
    engine.executor.idle_work = lambda *, busy: used.append((busy, pool.used)) and False
    engine.executor.idle_work_due = lambda *, busy: True
    with started(engine):
        engine.generate(*(sequence([1, 2, 3], max_tokens=n) for n in (2, 5, 9)))
    assert any(blocks for busy, blocks in used if busy)
    assert {blocks for busy, blocks in used if not busy} == {0}


def test_background_work_that_hangs_is_seen_as_a_step_that_hangs():
    hanging, over = threading.Event(), threading.Event()
    with running_engine() as engine:

        def work(*, busy):
            hanging.set()
            over.wait(PATIENCE_SECONDS)
            return False

        engine.executor.idle_work = work
        engine.executor.idle_work_due = lambda *, busy: not hanging.is_set()
        engine.loop.wake()
        assert hanging.wait(PATIENCE_SECONDS)
        assert engine.loop.step_seconds() > 0
        over.set()
        engine.generate(sequence([1], max_tokens=2))
        assert engine.loop.step_seconds() == 0


def test_a_fault_ends_all_requests_and_refuses_new_ones():
    with running_engine(limits(max_batch_size=1)) as engine:
        engine.executor.fail_at = 3
        engine.executor.gate.clear()
        running, waiting = sequence([1]), sequence([2])
        engine.loop.submit([running])
        engine.loop.submit([waiting])
        engine.executor.gate.set()
        results = engine.wait([running, waiting])
        assert [str(result.error) for result in results] == ["StepError: device lost"] * 2
        assert len(results[0].tokens) == 2, "tokens before the fault are delivered"
        assert engine.faults == ["StepError: device lost"]
        with pytest.raises(EngineFaultError, match="device lost"):
            engine.loop.submit([sequence([3])])
        assert engine.loop.fault == "StepError: device lost"


def test_an_exception_of_any_kind_is_a_fault():
    with running_engine() as engine:

        def broken(step):
            raise ZeroDivisionError("unexpected")

        engine.executor.before_step = broken
        [result] = engine.generate(sequence([1]))
        assert "ZeroDivisionError: unexpected" in str(result.error)
        assert engine.faults == ["ZeroDivisionError: unexpected"]


def test_a_fault_that_cannot_be_reported_still_ends_the_requests():
    engine = Engine()
    engine.loop._on_fault = lambda message: 1 / 0
    engine.executor.fail_at = 1
    threading.excepthook, before = lambda arguments: None, threading.excepthook
    try:
        engine.loop.start(engine.collect)
        [result] = engine.generate(sequence([1]))
        engine.loop.close()
    finally:
        threading.excepthook = before
    assert "device lost" in str(result.error)


def test_background_work_is_told_of_requests_that_arrive_while_it_is_asked():
    calls = []
    engine = Engine(limits(max_batch_size=1))
    engine.executor.idle_work = lambda *, busy: calls.append(busy) and False
    engine.executor.idle_work_due = lambda *, busy: True
    with started(engine):
        engine.executor.gate.clear()
        first, second = sequence([1], max_tokens=1), sequence([2], max_tokens=1)
        engine.loop.submit([first])
        while engine.loop.step_seconds() == 0.0:
            time.sleep(0.001)
        engine.loop.submit([second])
        calls.clear()
        engine.executor.gate.set()
        engine.wait([first, second])
    assert calls[0] is True


def test_closing_ends_what_is_left_without_a_fault():
    with running_engine() as engine:
        engine.executor.gate.clear()
        left = sequence([1], max_tokens=100)
        engine.loop.submit([left])
        once_closing(engine, engine.executor.gate.set)
        engine.loop.close()
        assert "shutting down" in str(engine.result(left).error)
        assert engine.faults == []
        with pytest.raises(EngineFaultError, match="shutting down"):
            engine.loop.submit([sequence([1])])


def test_an_engine_that_never_started_can_be_closed():
    Engine().loop.close()


def test_only_so_many_sequences_may_wait():
    with running_engine(limits(max_batch_size=1), max_waiting=3) as engine:
        engine.executor.gate.clear()
        first = sequence([1])
        engine.loop.submit([first])
        while engine.loop._scheduler.running == []:
            time.sleep(0.001)
        engine.loop.submit([sequence([1]), sequence([1])])
        engine.loop.submit([sequence([1])])
        with pytest.raises(OverloadedError, match="3 sequences wait already"):
            engine.loop.submit([sequence([1])])


def test_a_sequence_that_can_never_fit_is_refused_at_once():
    with running_engine(limits(blocks=4)) as engine:
        with pytest.raises(ValueError, match="17 positions don't fit in 4 KV blocks"):
            engine.loop.submit([sequence([1] * 10, max_tokens=8)])
        [result] = engine.generate(sequence([1] * 10, max_tokens=7))
        assert len(result.tokens) == 7


def test_a_step_that_hangs_shows_how_long_it_has_been_running():
    with running_engine() as engine:
        assert engine.loop.step_seconds() == 0.0
        engine.executor.gate.clear()
        one = sequence([1], max_tokens=1)
        engine.loop.submit([one])
        while engine.loop.step_seconds() == 0.0:
            time.sleep(0.001)
        earlier = engine.loop.step_seconds()
        assert engine.loop.step_seconds() > earlier
        engine.executor.gate.set()
        engine.wait([one])
        assert engine.loop.step_seconds() == 0.0


def test_a_prompt_can_be_scored_without_any_output():
    with running_engine() as engine:
        [result] = engine.generate(sequence([1, 2, 3], max_tokens=0, prompt_logprobs=1))
    assert result.tokens == []
    assert result.finish is FinishReason.LENGTH
    assert [scored.token_id for scored in result.prompt_logprobs] == [2, 3]


class FakeClock:
    now = 100.0

    def __call__(self):
        return self.now


def test_requests_are_counted_from_acceptance_to_last_byte():
    clock = FakeClock()
    in_flight = InFlight(clock)
    clock.now += 5
    assert in_flight.load().idle_seconds == 5
    in_flight.restart_idle()
    assert in_flight.load().idle_seconds == 0
    with in_flight.open() as first:
        first.sequences = [sequence([1])]
        with in_flight.open():
            first.sequences[0].admitted = True
            load = in_flight.load()
            assert (load.running, load.waiting, load.idle_seconds) == (1, 1, 0)
            clock.now += 7
        assert in_flight.load().in_flight == 1
    clock.now += 2
    load = in_flight.load()
    assert (load.in_flight, load.idle_seconds, load.requests_total) == (0, 2, 2)


def test_a_request_that_fails_is_no_longer_in_flight():
    in_flight = InFlight()
    with pytest.raises(RuntimeError, match="broken"), in_flight.open():
        raise RuntimeError("broken")
    assert in_flight.load().in_flight == 0
