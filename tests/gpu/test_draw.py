"""Tokens that steps draw on the GPU, and steps that are handed over before they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.engine.cuda.models import Sequences, llama_values
from tests.engine.cuda.serving import nearly, told
from tests.engine.harness import Engine, Result, sequence
from tests.gpu.conftest import Served
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.sampling.cpu import CpuSampler, draw_token
from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.sampling.sampler import Draw
from warmgraph_engine.shapes import bucket_shape
from warmgraph_engine.step import Step, StepDraw, StepRow

pytestmark = pytest.mark.gpu

SMALL = llama_values()
LARGE = llama_values(vocab_size=128256, hidden_size=256, num_attention_heads=4)
ROWS = 32
BORDER = 1e-5
"""How near to the border between two tokens a random number may lie for the GPU to draw the other:
ten times what its exp() is off by."""

TRUNCATIONS = [
    {},
    {"top_k": 1},
    {"top_k": 40},
    {"top_p": 0.9},
    {"top_p": 0.3, "temperature": 2.0},
    {"min_p": 0.05},
    {"top_k": 50, "top_p": 0.95, "min_p": 0.01, "temperature": 0.6},
]


def with_draws(step: Step, draws: Sequence[StepDraw]) -> Step:
    rows = [
        StepRow(
            token_ids=row.token_ids,
            slot=ROWS - 1 - number,
            start_position=row.start_position,
            block_table=row.block_table,
            logit_rows=1,
            draw=draw,
        )
        for number, (row, draw) in enumerate(zip(step.rows, draws, strict=True))
    ]
    return Step(kind=step.kind, rows=rows)


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["1000 tokens", "128256 tokens"])
@pytest.mark.parametrize("given", TRUNCATIONS, ids=str)
def test_a_token_is_the_one_that_the_cpu_draws_from_the_same_logits(
    serve: Callable[..., Served], values: dict[str, Any], given: dict[str, Any]
) -> None:
    model = serve(values)
    params = SamplingParams(max_tokens=1, **given)
    work = Sequences(
        [9] * ROWS, vocabulary=model.config.vocabulary, block_size=16, blocks=1000, seed=2
    )
    graph, _ = model.capture(
        bucket_shape(StepKind.DECODE, ROWS, max_batch_size=ROWS, speculative_tokens=0)
    )
    chance = np.random.default_rng(3)
    scratch = np.empty(model.config.vocabulary, np.float32)
    for _ in range(6):
        numbers = chance.random(ROWS).tolist()
        draws = [
            StepDraw()
            if number < 0.2
            else StepDraw(
                scale=1 / params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
                number=number,
            )
            for number in numbers
        ]
        step = with_draws(work.step(StepKind.DECODE, [1] * ROWS), draws)
        shape = bucket_shape(StepKind.DECODE, ROWS, max_batch_size=ROWS, speculative_tokens=0)
        logits = model.replay(graph, step, shape)
        tokens = model.backend.result(ROWS).drawn()
        for row, draw in enumerate(draws):
            token = tokens[ROWS - 1 - row]
            if not draw.scale:
                assert token == int(logits[row].argmax())
                continue
            near = {
                draw_token(logits[row], params, min(max(number, 0.0), 1 - 1e-9), scratch=scratch)
                for number in (draw.number - BORDER, draw.number, draw.number + BORDER)
            }
            assert token in near


class OnHost:
    """Draws every token from logits on the host, one step at a time."""

    def __init__(self, vocabulary: int) -> None:
        self._cpu = CpuSampler(vocabulary=vocabulary)

    def in_step(self, _draw: Draw) -> None:
        return None

    def sample(self, logits: Any, draws: Sequence[Draw]) -> Any:
        rows = logits.on_host([draw.row for draw in draws]) if draws else np.empty((0, 0))
        moved = [Draw(i, draw.sequence, draw.position) for i, draw in enumerate(draws)]
        return self._cpu.sample(rows, moved)

    def prompt_logprobs(self, logits: Any, *, first_row: int, targets: Any, top: int) -> Any:
        rows = logits.on_host(range(first_row, first_row + len(targets)))
        return self._cpu.prompt_logprobs(rows, first_row=0, targets=targets, top=top)

    def forget(self, sequence_id: int) -> None:
        self._cpu.forget(sequence_id)


def generated(model: Served, sampler: Any) -> list[Result]:
    backend = model.backend
    declared = [(StepKind.DECODE, n) for n in (1, 4, 16)] + [(StepKind.PREFILL, 64)]
    graphs = GraphTable(
        backend, [Bucket(kind=kind, size=n, mode=BucketMode.EAGER) for kind, n in declared]
    )
    for bucket in graphs.ids():
        assert graphs.capture(bucket)
    engine = Engine(executor=GraphExecutor(backend, graphs, StepCounts()), sampler=sampler)
    engine.loop.start(engine.collect)
    chance = np.random.default_rng(5)
    sequences = []
    for number in range(60):
        prompt = chance.integers(0, model.config.vocabulary, int(chance.integers(1, 90))).tolist()
        params: dict[str, Any] = {"max_tokens": int(chance.integers(1, 60))}
        if number % 5 == 1:
            params["stop_token_ids"] = frozenset(chance.integers(0, 1000, 60).tolist())
        if number % 4 == 2:
            params["logprobs"] = number % 21
        if number % 5 == 3:
            params |= {"frequency_penalty": 1 / 3, "presence_penalty": 0.5}
        if number % 6 == 4:
            params |= {"repetition_penalty": 1.3, "logit_bias": {7: 4.0, 8: -100.0}}
        if number % 7 == 1:
            params |= {"min_tokens": min(8, params["max_tokens"])}
            params["stop_token_ids"] = frozenset(chance.integers(0, 1000, 300).tolist())
        sequences.append(sequence(prompt, **params))
    try:
        return engine.generate(*sequences)
    finally:
        engine.loop.close()
        assert engine.faults == []


def test_running_ahead_gives_the_tokens_of_one_step_at_a_time(serve: Callable[..., Served]) -> None:
    """Whatever they are drawn with; and those of the CPU's sampler on the same logits."""
    model = serve(SMALL)
    ahead = generated(model, model.backend.sampler)
    assert told(ahead) == told(generated(model, OnHost(model.config.vocabulary)), nearly)
    assert ahead == generated(model, model.backend.sampler)
