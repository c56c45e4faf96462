"""Speculative decoding over a tiny model on the CPU backend: with graphs, without, and where no
verify bucket holds a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.checkpoints import SETTINGS, backend, write_checkpoint
from tests.engine.harness import running_engine, sequence
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_api.resource import Execution
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.step import Path as StepPath
from warmgraph_engine.step import PathReason
from warmgraph_engine.warmup.check import KnownAnswers

DRAFTS = 3
VERIFY = StepKind.VERIFY

REQUESTS: list[tuple[list[int], dict[str, Any]]] = [
    ([5, 6, 7] * 4, {"temperature": 0.0, "max_tokens": 50}),
    ([1, 2, 3, 4, 5, 6], {"temperature": 0.0, "logprobs": 2}),
    ([9] * 8, {"temperature": 0.2, "seed": 1}),
    ([30, 31] * 5, {"temperature": 0.4, "seed": 2, "frequency_penalty": 0.2}),
    ([40, 41, 42] * 3, {"temperature": 0.0, "stop_token_ids": frozenset(range(60, 70))}),
]


class World:
    def __init__(self, folder: Path, verify: tuple[int, ...]) -> None:
        # Blocks for all: how much is drafted then depends on each text alone.
        settings = replace(SETTINGS, kv_cache_bytes=256 << 10, max_tokens_per_sequence=1 + DRAFTS)
        self.backend = backend(folder, settings)
        sizes = [(StepKind.DECODE, n) for n in (1, 2, 4, 8)] + [(VERIFY, n) for n in verify]
        self.graphs = GraphTable(
            self.backend,
            [Bucket(kind=kind, size=size, mode=BucketMode.EAGER) for kind, size in sizes],
            speculative_tokens=DRAFTS,
        )
        for bucket in self.graphs.ids():
            assert self.graphs.capture(bucket)
        self.counts = StepCounts()
        self.executor = GraphExecutor(self.backend, self.graphs, self.counts)

    def generate(self, execution: Execution, *, drafts: int) -> tuple[list[Any], list[float]]:
        """What each request got, and the counters of drafts."""
        self.executor.set_execution(execution)
        with running_engine(executor=self.executor, speculative_tokens=drafts) as engine:
            sequences = [
                sequence(prompt, **{"max_tokens": 30} | params) for prompt, params in REQUESTS
            ]
            engine.loop.submit(sequences)
            results = engine.wait(sequences)
            assert engine.faults == []
            names = ("drafts", "draft_tokens", "accepted_tokens")
            return results, [engine.value(f"spec_decode_{name}_total") for name in names]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path)


def ids(results: list[Any]) -> list[tuple[list[int], Any]]:
    return [(result.ids, result.finish) for result in results]


def test_graphs_on_or_off_drafts_or_none_the_tokens_are_the_same(folder: Path) -> None:
    world = World(folder, verify=(1, 2, 4, 8))
    expected, none = world.generate(Execution.EAGER, drafts=0)
    assert none == [0, 0, 0]
    assert ids(world.generate(Execution.GRAPHS, drafts=0)[0]) == ids(expected)
    eager, eager_counts = world.generate(Execution.EAGER, drafts=DRAFTS)
    world.counts.steps.clear()
    graphs, graph_counts = world.generate(Execution.GRAPHS, drafts=DRAFTS)
    assert ids(eager) == ids(graphs) == ids(expected)
    assert graph_counts == eager_counts
    drafted, accepted = graph_counts[1:]
    assert 0 < accepted < drafted
    paths = {path for kind, _, path, _ in world.counts.steps if kind is VERIFY}
    assert StepPath.EAGER not in paths
    assert paths != set()


def test_logprobs_of_verified_tokens_are_those_of_decoded_ones(folder: Path) -> None:
    """To float32's last bits: a row of a larger matrix product is summed in another order."""
    world = World(folder, verify=(1, 2, 4, 8))
    [plain], [drafted] = (
        world.generate(Execution.GRAPHS, drafts=drafts)[0][1:2] for drafts in (0, DRAFTS)
    )
    assert plain.ids == drafted.ids
    for one, other in zip(plain.tokens, drafted.tokens, strict=True):
        assert one.logprob.logprob == pytest.approx(other.logprob.logprob, abs=1e-4)


def test_a_step_that_no_verify_bucket_holds_runs_without_a_graph_and_is_counted(
    folder: Path,
) -> None:
    world = World(folder, verify=(1,))
    expected, _ = world.generate(Execution.EAGER, drafts=0)
    world.counts.steps.clear()
    results, counts = world.generate(Execution.GRAPHS, drafts=DRAFTS)
    assert ids(results) == ids(expected)
    assert counts[2] > 0
    assert world.counts.steps[(VERIFY, 0, StepPath.EAGER, PathReason.NO_BUCKET)] > 0
    assert world.counts.steps[(VERIFY, 1, StepPath.EXACT, PathReason.BUCKET)] > 0


def test_every_verify_graph_passes_the_known_answer_check(folder: Path) -> None:
    world = World(folder, verify=(1, 2, 8))
    answers = KnownAnswers(world.backend, world.graphs, world.counts)
    for size in (1, 2, 8):
        assert answers.check((VERIFY, size)).problem == ""
