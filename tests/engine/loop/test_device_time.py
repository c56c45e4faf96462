"""Time in which the GPU waits counts as idle only while there is a request to run."""

from __future__ import annotations

import pytest

from tests.engine.harness import Engine, sequence
from warmgraph_engine.step import StepTimes


class Timing:
    """Of a device that is always 2 s busy, after 7 s in which it was not."""

    def times(self) -> StepTimes:
        return StepTimes(idle_seconds=7.0, busy_seconds=2.0)


def run(engine: Engine, *prompts: list[int]) -> None:
    sequences = [sequence(prompt, max_tokens=4) for prompt in prompts]
    engine.loop.submit(sequences)
    while any(engine.result(one).finish is None for one in sequences):
        engine.loop.wake()
        engine.loop._turn()


@pytest.mark.parametrize("run_ahead", [False, True])
def test_waiting_for_a_request_is_not_idle_time(run_ahead):
    engine = Engine(run_ahead=run_ahead)
    engine.loop._deliver = engine.collect
    engine.executor.timing = Timing()
    for requests in (1, 2):
        run(engine, [1, 2])
        steps = len(engine.executor.steps)
        assert engine.value("gpu_busy_seconds_total") == 2.0 * steps
        assert engine.value("gpu_idle_seconds_total") == 7.0 * (steps - requests)


def test_a_device_that_does_not_measure_counts_nothing():
    engine = Engine()
    engine.loop._deliver = engine.collect
    run(engine, [1, 2], [3])
    assert engine.value("gpu_busy_seconds_total") == engine.value("gpu_idle_seconds_total") == 0
