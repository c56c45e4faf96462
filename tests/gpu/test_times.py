"""The times that steps on a GPU say of themselves."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.engine.cuda.models import llama_values
from tests.gpu.conftest import Served
from warmgraph_api.report import StepKind
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import Step, StepDraw, StepRow, StepTimes

pytestmark = pytest.mark.gpu

PAUSE_SECONDS = 0.05
RESOLUTION_SECONDS = 1e-6
"""Of the GPU's events: half of it, and as much again for what is summed."""


def test_times_of_steps_add_up_and_show_when_the_gpu_had_nothing_to_do(
    serve: Callable[..., Served],
) -> None:
    model = serve(llama_values(), "bfloat16", "bfloat16")
    backend = model.backend
    row = StepRow(
        token_ids=[5], start_position=0, block_table=BlockTable([1]), logit_rows=1, draw=StepDraw()
    )
    step = Step(kind=StepKind.DECODE, rows=[row])
    graph, _ = model.capture(shape_of(step))
    model.replay(graph, step, shape_of(step))

    def run(count: int) -> list[StepTimes]:
        """Each is handed over before the one before it is read."""
        timings = []
        for _ in range(count):
            backend.buffers.fill(step, shape_of(step))
            graph.replay()
            timings.append(backend.timing())
        return [timing.times() for timing in timings]

    time.sleep(PAUSE_SECONDS)
    began = time.perf_counter()
    first, *others = run(20)
    seconds = time.perf_counter() - began
    assert first.idle_seconds >= PAUSE_SECONDS
    assert all(times.busy_seconds > 0 for times in (first, *others))
    assert all(times.idle_seconds >= 0 for times in others)
    took = first.busy_seconds + sum(t.idle_seconds + t.busy_seconds for t in others)
    assert took <= seconds + 20 * RESOLUTION_SECONDS
