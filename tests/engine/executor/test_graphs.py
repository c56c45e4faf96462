"""Graphs against eager execution: every bucket, every size in it, with poison all around."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.checkpoints import backend, decode, prefill, write_checkpoint
from warmgraph_api.report import Bucket, BucketMode, BucketState, StepKind
from warmgraph_api.resource import Execution
from warmgraph_engine.backends.base import CaptureError, GraphImage
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Path as StepPath
from warmgraph_engine.step import PathReason, Step, StepError, StepRow

DECODE = (1, 2, 4, 8)
PREFILL = (4, 8, 32)
CONTEXTS = [3, 1, 9, 4, 12, 8, 5, 2]
"""Lengths of eight sequences, around the block size of 4."""


class Engine:
    """A tiny model with every bucket captured."""

    def __init__(self, folder: Path) -> None:
        self.backend: CpuBackend = backend(folder)
        declared = [
            Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
            for kind, sizes in ((StepKind.DECODE, DECODE), (StepKind.PREFILL, PREFILL))
            for size in sizes
        ]
        self.graphs = GraphTable(self.backend, declared)
        self.counts = StepCounts()
        self.executor = GraphExecutor(self.backend, self.graphs, self.counts)
        for bucket in self.graphs.ids():
            assert self.graphs.capture(bucket)

    def poison(self) -> None:
        """Everything that no step may read: all KV, and what earlier steps left in buffers."""
        for region in self.backend.layout:
            if region.group == "kv" or region.name == "buffers.logits":
                self.backend.arena.tensor(region.name).fill_(float("nan"))
            elif region.group == "buffers":
                self.backend.arena.tensor(region.name).fill_(3)

    def run(self, step: Step, execution: Execution = Execution.GRAPHS) -> np.ndarray:
        self.executor.set_execution(execution)
        return np.array(self.executor.execute(step).logits)

    def both(self, step: Step) -> np.ndarray:
        """Logits with graphs, after comparing them with eager execution's."""
        eager = self.run(step, Execution.EAGER)
        self.backend.arena.tensor("buffers.logits").fill_(float("nan"))
        graph = self.run(step)
        assert np.isfinite(graph).all()
        np.testing.assert_allclose(graph, eager, atol=1e-5)
        np.testing.assert_array_equal(graph.argmax(axis=1), eager.argmax(axis=1))
        return graph


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(write_checkpoint(tmp_path))
    engine.poison()
    yield engine
    # Whatever ran: no step wrote outside its sequences' blocks.
    for layer in range(2):
        assert engine.backend.arena.tensor(f"kv.{layer}.key")[40:].isnan().all()


def fill_contexts(engine: Engine) -> list[list[int]]:
    """Prefill eight sequences; their blocks."""
    tables = [[4 * i + 1, 4 * i + 3, 4 * i + 2, 4 * i + 4] for i in range(8)]
    for i, (length, table) in enumerate(zip(CONTEXTS, tables, strict=True)):
        engine.run(prefill([(11 * i + j) % 97 for j in range(length)], table), Execution.EAGER)
    return tables


@pytest.mark.parametrize("sequences", range(1, 9))
def test_decode_of_any_size_equals_eager(engine: Engine, sequences: int) -> None:
    tables = fill_contexts(engine)
    engine.both(decode(*((20 + i, CONTEXTS[i], tables[i]) for i in range(sequences))))


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 7, 8, 9, 16, 31, 32])
def test_prefill_of_any_size_equals_eager(engine: Engine, tokens: int) -> None:
    ids = [(7 * i + 1) % 97 for i in range(tokens)]
    engine.both(prefill(ids, [9, 8, 7, 6, 5, 4, 3, 2], logit_rows=1))


def test_a_step_with_chunks_of_several_sequences_equals_eager(engine: Engine) -> None:
    rows = [
        StepRow(
            token_ids=[1, 2, 3, 4, 5],
            start_position=0,
            block_table=BlockTable([3, 5]),
            logit_rows=0,
        ),
        StepRow(token_ids=[6], start_position=0, block_table=BlockTable([1]), logit_rows=1),
        StepRow(token_ids=[7, 8, 9], start_position=0, block_table=BlockTable([2]), logit_rows=1),
    ]
    engine.both(Step(kind=StepKind.PREFILL, rows=rows))


def test_a_sequence_gets_the_same_logits_alone_and_in_company(engine: Engine) -> None:
    tables = fill_contexts(engine)
    rows = [(20 + i, CONTEXTS[i], tables[i]) for i in range(8)]
    together = engine.run(decode(*rows))
    for i, row in enumerate(rows):
        alone = engine.run(decode(row))
        np.testing.assert_allclose(together[i], alone[0], atol=1e-5)


def test_a_bucket_serves_other_lengths_than_it_was_captured_with(engine: Engine) -> None:
    """Attention metadata belongs to the step, not to the capture."""
    ids = [(5 * i + 2) % 97 for i in range(60)]
    table = list(range(1, 16))
    engine.run(prefill(ids[:30], table), Execution.EAGER)
    for position in range(30, 60):
        engine.both(decode((ids[position], position, table)))


def test_more_prompt_logits_than_a_graph_holds_run_eagerly(engine: Engine) -> None:
    step = prefill(list(range(20)), [1, 2, 3, 4, 5], logit_rows=20)
    result = engine.executor.execute(step)
    assert (result.path, result.reason) == (StepPath.EAGER, PathReason.ALL_LOGITS)
    assert result.logits.shape == (20, 97)


def test_switching_graphs_off_keeps_serving(engine: Engine) -> None:
    tables = fill_contexts(engine)
    step = decode((20, CONTEXTS[0], tables[0]))
    engine.executor.set_execution(Execution.GRAPHS)
    on = engine.executor.execute(step)
    assert on.path is StepPath.EXACT
    before = np.array(on.logits)
    engine.executor.set_execution(Execution.EAGER)
    off = engine.executor.execute(step)
    assert (off.path, off.reason) == (StepPath.EAGER, PathReason.GRAPHS_OFF)
    np.testing.assert_allclose(off.logits, before, atol=1e-5)


def test_steps_and_padding_are_counted_by_bucket(engine: Engine) -> None:
    tables = fill_contexts(engine)
    engine.counts.steps.clear()
    for _ in range(3):
        engine.run(decode(*((1, CONTEXTS[i], tables[i]) for i in range(3))))
    key = (StepKind.DECODE, 4, StepPath.PADDED, PathReason.LARGER_BUCKET)
    assert dict(engine.counts.steps) == {key: 3}
    assert engine.counts.real_tokens[(StepKind.DECODE, 4)] == 9
    assert engine.counts.padded_tokens[(StepKind.DECODE, 4)] == 3
    assert engine.counts.replays[(StepKind.DECODE, 4)] == 3


def test_a_failed_capture_disables_its_bucket_alone(tmp_path: Path) -> None:
    model = backend(write_checkpoint(tmp_path))
    recorder = model.recorder

    class Failing:
        def record(self, size: int, shape: StepShape) -> GraphImage:
            if size == 2:
                raise CaptureError("out of memory")
            return recorder.record(size, shape)

    model.recorder = Failing()  # type: ignore[assignment]
    declared = [Bucket(kind=StepKind.DECODE, size=s, mode=BucketMode.EAGER) for s in (1, 2)]
    graphs = GraphTable(model, declared)
    assert graphs.capture((StepKind.DECODE, 1))
    assert not graphs.capture((StepKind.DECODE, 2))
    failed = graphs[(StepKind.DECODE, 2)].bucket
    assert (failed.state, failed.reason) == (
        BucketState.FALLBACK,
        "capture failed: out of memory",
    )
    executor = GraphExecutor(model, graphs, StepCounts())
    result = executor.execute(decode((1, 0, [1]), (2, 0, [2])))
    assert (result.path, result.reason) == (StepPath.EAGER, PathReason.CAPTURE_FAILED)
    assert executor.execute(decode((1, 0, [1]))).path is StepPath.EXACT


def test_capturing_between_steps_leaves_running_sequences_alone(engine: Engine) -> None:
    tables = fill_contexts(engine)
    step = decode((20, CONTEXTS[2], tables[2]))
    before = engine.run(step)
    for bucket in engine.graphs.ids():
        engine.graphs.capture(bucket)
    np.testing.assert_array_equal(engine.run(step), before)


def test_a_backend_that_fails_is_a_step_error(engine: Engine) -> None:
    engine.backend.arena._tensors["weights.norm"] = torch.ones(3)
    with pytest.raises(StepError, match="decode step of 1 tokens failed"):
        engine.run(decode((1, 0, [1])), Execution.EAGER)
