"""The real checkpoint: greedy text equals transformers', for every bucket, graphs on and off."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from tests.engine.prompts import PROMPTS
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

pytestmark = [pytest.mark.model, pytest.mark.timeout(1200)]

NEW_TOKENS = 10
DECODE = (1, 2, 4, 8, 20)
PREFILL = (16, 64, 128)
BLOCKS_PER_PROMPT = 8


class World:
    def __init__(self, folder: Path) -> None:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        theirs.generation_config.eos_token_id = None  # the same number of tokens for all
        self.prompts: list[list[int]] = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
        self.expected = [
            theirs.generate(
                torch.tensor([ids]),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                pad_token_id=0,
            )[0, len(ids) :].tolist()
            for ids in self.prompts
        ]
        del theirs
        settings = BackendSettings(
            dtype="float32",
            block_size=16,
            kv_cache_bytes=256 << 20,
            max_model_length=BLOCKS_PER_PROMPT * 16,
            max_batch_size=len(PROMPTS),
            max_batch_tokens=128,
        )
        backend = CpuBackend(Checkpoint(folder), settings)
        sizes = [(StepKind.DECODE, n) for n in DECODE] + [(StepKind.PREFILL, n) for n in PREFILL]
        self.graphs = GraphTable(
            backend, [Bucket(kind=k, size=n, mode=BucketMode.EAGER) for k, n in sizes]
        )
        self.executor = GraphExecutor(backend, self.graphs, StepCounts())
        for bucket in self.graphs.ids():
            assert self.graphs.capture(bucket)
        self._prefilled: dict[int, tuple[int, Execution]] = {}
        self._first: dict[int, int] = {}

    def prefill(self, prompt: int) -> int:
        """The first token of the answer. What decoding leaves behind a prompt's KV is written
        anew by the next decoding, so that one prefill for each way of execution is enough."""
        key = (prompt, self.executor.execution)
        if self._prefilled.get(prompt) != key:
            step = Step(kind=StepKind.PREFILL, rows=[self.whole_prompt(prompt)])
            result = self.executor.execute(step)
            self._prefilled[prompt] = key
            self._first[prompt] = int(result.logits[0].argmax())
        return self._first[prompt]

    def whole_prompt(self, prompt: int) -> StepRow:
        return StepRow(
            token_ids=self.prompts[prompt],
            start_position=0,
            block_table=BlockTable(self._blocks(prompt)),
            logit_rows=1,
        )

    def generate(self, prompts: list[int], *, path: StepPath | None = None) -> list[list[int]]:
        """Greedy tokens of some prompts, decoded together."""
        outputs = [[self.prefill(prompt)] for prompt in prompts]
        for _ in range(NEW_TOKENS - 1):
            rows = [
                StepRow(
                    token_ids=[output[-1]],
                    start_position=len(self.prompts[prompt]) + len(output) - 1,
                    block_table=BlockTable(self._blocks(prompt)),
                    logit_rows=1,
                )
                for prompt, output in zip(prompts, outputs, strict=True)
            ]
            result = self.executor.execute(Step(kind=StepKind.DECODE, rows=rows))
            assert path is None or result.path is path
            for output, logits in zip(outputs, result.logits, strict=True):
                output.append(int(logits.argmax()))
        return outputs

    def _blocks(self, prompt: int) -> list[int]:
        first = 1 + prompt * BLOCKS_PER_PROMPT
        return list(range(first, first + BLOCKS_PER_PROMPT))


@pytest.fixture(scope="module")
def world(smollm2: Path) -> World:
    return World(smollm2)


@pytest.mark.parametrize("bucket", DECODE)
def test_every_prompt_in_every_decode_bucket(world: World, bucket: int) -> None:
    world.executor.set_execution(Execution.GRAPHS)
    numbers = list(range(len(PROMPTS)))
    for first in range(0, len(numbers), bucket):
        some = numbers[first : first + bucket]
        assert world.generate(some) == [world.expected[n] for n in some]


@pytest.mark.parametrize("bucket", PREFILL)
def test_every_prompt_in_every_prefill_bucket_that_holds_it(world: World, bucket: int) -> None:
    """Beside others if need be: a step takes the smallest bucket that holds it."""
    world.executor.set_execution(Execution.GRAPHS)
    smaller = max((size for size in PREFILL if size < bucket), default=0)
    filling = sorted(range(len(PROMPTS)), key=lambda n: len(world.prompts[n]))
    tried = 0
    for prompt, ids in enumerate(world.prompts):
        if len(ids) > bucket:
            continue
        company, tokens = [prompt], len(ids)
        for other in filling:
            length = len(world.prompts[other])
            if tokens <= smaller and other != prompt and tokens + length <= bucket:
                company.append(other)
                tokens += length
        rows = [world.whole_prompt(number) for number in company]
        result = world.executor.execute(Step(kind=StepKind.PREFILL, rows=rows))
        assert result.bucket == bucket
        firsts = [int(logits.argmax()) for logits in result.logits]
        assert firsts == [world.expected[number][0] for number in company]
        tried += 1
    assert tried >= len(PROMPTS) - 1


@pytest.mark.parametrize("company", [3, 7, 19])
def test_padded_batches_give_the_same_text(world: World, company: int) -> None:
    world.executor.set_execution(Execution.GRAPHS)
    some = list(range(company))
    expected = [world.expected[n] for n in some]
    assert world.generate(some, path=StepPath.PADDED) == expected


def test_without_graphs_the_text_is_the_same(world: World) -> None:
    world.executor.set_execution(Execution.EAGER)
    numbers = list(range(len(PROMPTS)))
    assert world.generate(numbers, path=StepPath.EAGER) == world.expected


def test_the_second_version_is_another_artifact(smollm2: Path, smollm2_v2: Path) -> None:
    assert Checkpoint(smollm2).digest != Checkpoint(smollm2_v2).digest
