"""The real checkpoint with drafts: the same text in fewer steps, with graphs and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.harness import running_engine, sequence
from tests.engine.models.test_smollm2 import PROMPTS
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_api.resource import Execution
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.step import Path as StepPath
from warmgraph_engine.step import Step, StepRow
from warmgraph_engine.tokenizer.text import TextModel

pytestmark = [pytest.mark.model, pytest.mark.timeout(1200)]

DRAFTS = 4
NEW_TOKENS = 24
BUCKETS = (1, 4, 20)

RIVER = (
    "The river rises in the hills north of the town, flows past the old mill and the market"
    " square, and reaches the sea near the lighthouse."
)
REPETITIVE = [
    f"Repeat this text word for word:\n\n{RIVER}",
    f"Correct the spelling of this text and change nothing else:\n\n{RIVER.replace('ll', 'l')}",
    f"Summarize in one sentence:\n\n{RIVER}",
]


class World:
    def __init__(self, folder: Path) -> None:
        settings = BackendSettings(
            dtype="float32",
            block_size=16,
            kv_cache_bytes=256 << 20,
            max_model_length=256,
            max_batch_size=len(PROMPTS),
            max_batch_tokens=128,
            max_tokens_per_sequence=1 + DRAFTS,
        )
        backend = CpuBackend(Checkpoint(folder), settings)
        self.text = TextModel.load(folder, vocabulary=backend.limits.vocabulary)
        self.graphs = GraphTable(
            backend,
            [
                Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
                for kind in (StepKind.DECODE, StepKind.VERIFY)
                for size in BUCKETS
            ],
            speculative_tokens=DRAFTS,
        )
        for bucket in self.graphs.ids():
            assert self.graphs.capture(bucket)
        self.counts = StepCounts()
        self.executor = GraphExecutor(backend, self.graphs, self.counts)

    def ask(self, prompt: str) -> list[int]:
        return self.text.encode_chat([{"role": "user", "content": prompt}])

    def generate(
        self, prompts: list[list[int]], execution: Execution, *, drafts: int, **params: Any
    ) -> tuple[list[list[int]], float]:
        """The tokens of each prompt's output, and how many of them were drafted."""
        self.executor.set_execution(execution)
        with running_engine(executor=self.executor, speculative_tokens=drafts) as engine:
            sequences = [
                sequence(ids, seed=number, **{"max_tokens": NEW_TOKENS} | params)
                for number, ids in enumerate(prompts)
            ]
            engine.loop.submit(sequences)
            results = engine.wait(sequences)
            assert engine.faults == []
            return [r.ids for r in results], engine.value("spec_decode_accepted_tokens_total")


@pytest.fixture(scope="module")
def world(smollm2: Path) -> World:
    return World(smollm2)


@pytest.mark.parametrize("execution", [Execution.GRAPHS, Execution.EAGER])
def test_twenty_prompts_at_once_give_the_text_that_they_give_without_drafts(
    world: World, execution: Execution
) -> None:
    prompts = [world.text.encode(prompt) for prompt in PROMPTS]
    expected, _ = world.generate(prompts, execution, drafts=0)
    drafted, accepted = world.generate(prompts, execution, drafts=DRAFTS)
    assert drafted == expected
    assert accepted > 0


@pytest.mark.parametrize("params", [{}, {"temperature": 0.8}, {"repetition_penalty": 1.05}])
def test_texts_that_repeat_take_fewer_steps_with_graphs_and_without(
    world: World, params: dict[str, Any]
) -> None:
    prompts = [world.ask(prompt) for prompt in REPETITIVE]
    expected, _ = world.generate(prompts, Execution.GRAPHS, drafts=0, **params)
    accepted = {}
    for execution in (Execution.GRAPHS, Execution.EAGER):
        world.counts.steps.clear()
        drafted, accepted[execution] = world.generate(prompts, execution, drafts=DRAFTS, **params)
        assert drafted == expected
        steps = sum(n for (kind, *_), n in world.counts.steps.items() if kind != "prefill")
        assert steps < max(map(len, expected)) - 1
        used_graphs = any(path is not StepPath.EAGER for _, _, path, _ in world.counts.steps)
        assert used_graphs == (execution is Execution.GRAPHS)
    assert accepted[Execution.GRAPHS] == accepted[Execution.EAGER] > 0


def test_verified_logits_differ_from_decoded_ones_in_the_last_bits_only(world: World) -> None:
    """A row of a larger matrix product is summed in another order; docs/limits.md says so."""
    ids = world.text.encode(RIVER)
    blocks = list(range(1, 17))

    def logits(kind: StepKind, start: int, count: int) -> np.ndarray:
        row = StepRow(
            token_ids=ids[start : start + count],
            start_position=start,
            block_table=BlockTable(blocks),
            logit_rows=count,
        )
        return np.array(world.executor.execute(Step(kind=kind, rows=[row])).logits)

    world.executor.set_execution(Execution.GRAPHS)
    logits(StepKind.PREFILL, 0, 10)
    decoded = np.concatenate([logits(StepKind.DECODE, start, 1) for start in range(10, 20)])
    verified = np.concatenate([logits(StepKind.VERIFY, start, 5) for start in (10, 15)])
    assert np.abs(verified - decoded).max() < 1e-5 * np.abs(decoded).max()
    np.testing.assert_array_equal(verified.argmax(axis=1), decoded.argmax(axis=1))
