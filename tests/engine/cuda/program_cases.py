"""The kernels and the order they are launched in, against the CPU backend's step functions.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.engine.cuda.interpreted import run
from tests.engine.cuda.models import (
    Reference,
    Sequences,
    cpu_memory,
    gpt2,
    host_buffers,
    llama,
    random_weights,
    relative_error,
    settings,
)
from warmgraph_api.report import StepKind
from warmgraph_api.resource import Quantization
from warmgraph_engine.backends.cuda import tiling
from warmgraph_engine.backends.cuda.layout import geometry
from warmgraph_engine.backends.cuda.program import step_program
from warmgraph_engine.models.config import ModelConfig
from warmgraph_engine.shapes import StepShape, shape_of
from warmgraph_engine.step import Step

PREFILL, DECODE, VERIFY = StepKind.PREFILL, StepKind.DECODE, StepKind.VERIFY


SPLIT = 16
"""Positions of a split of attention: few, so that short sequences have several."""


class Model:
    """A model run by interpreted kernels, and beside it the reference."""

    def __init__(self, config: ModelConfig, quantization: Quantization = Quantization.NONE) -> None:
        self.config, self.options = config, settings(quantization=quantization)
        self.geometry = replace(geometry(self.options), split=SPLIT)
        weights = random_weights(config, "float32")
        self.reference = Reference(config, self.options, weights)
        self.memory = cpu_memory(config, self.options, weights)
        self.memory["work.arrived"].zero_()
        parts = (
            self.options.max_batch_size * (self.options.max_model_length // SPLIT) * config.heads
        )
        self.memory["work.part"] = torch.full((parts, config.head_dim), float("nan"))
        for name in ("best", "mass"):
            self.memory[f"work.part_{name}"] = torch.full((parts,), float("nan"))
        for layer in range(config.layers):
            for name in ("key", "value"):
                self.memory[f"kv.{layer}.{name}"][0] = 0  # the dummy block starts zeroed
        self.buffers = host_buffers(self.memory, self.options.block_size)

    def run(self, step: Step, shape: StepShape | None = None) -> torch.Tensor:
        used = shape or shape_of(step)
        self.buffers.fill(step, used)
        self.memory["buffers.logits"].fill_(float("nan"))
        run(step_program(self.config, self.geometry, used), self.memory)
        assert not self.memory["work.arrived"].any()
        logits = self.memory["buffers.logits"]
        assert not logits[: used.logit_rows].isnan().any(), "every row is written, padding too"
        return logits[: shape_of(step).logit_rows].clone()

    def check(self, step: Step, shape: StepShape | None = None) -> None:
        error = relative_error(self.run(step, shape), self.reference.run(step))
        assert error < 1e-4


@pytest.mark.parametrize("quantization", Quantization)
@pytest.mark.parametrize(
    "config",
    [
        llama(num_attention_heads=6, num_key_value_heads=2, hidden_size=72, num_hidden_layers=2),
        llama(architectures=["Qwen2ForCausalLM"], tie_word_embeddings=True),
        llama(architectures=["Qwen3ForCausalLM"], attention_bias=True, mlp_bias=True),
        llama(architectures=["MistralForCausalLM"], sliding_window=6),
        gpt2(),
    ],
    ids=["llama, groups of three", "qwen2", "qwen3 with biases", "mistral window", "gpt2"],
)
def test_prefill_then_decode_gives_the_logits_of_the_cpu(
    config: ModelConfig, quantization: Quantization
) -> None:
    model = Model(config, quantization)
    work = Sequences([10, 5], vocabulary=config.vocabulary, block_size=4, blocks=30)
    model.check(work.step(PREFILL, [5, 4], logits=1))
    model.check(work.step(PREFILL, [4, 0], logits=1))
    model.check(work.step(DECODE, [1, 1]))


def test_a_padded_step_gives_real_rows_what_they_get_alone() -> None:
    model = Model(llama())
    work = Sequences([6, 6], vocabulary=70, block_size=4, blocks=30)
    bucket = StepShape(kind=PREFILL, tokens=16, sequences=4, logit_rows=4)
    model.check(work.step(PREFILL, [5, 3], logits=1), bucket)
    bucket = StepShape(kind=DECODE, tokens=4, sequences=4, logit_rows=4)
    model.check(work.step(DECODE, [1, 1]), bucket)


def test_verify_steps_give_logits_of_every_draft() -> None:
    model = Model(llama())
    work = Sequences([9, 9], vocabulary=70, block_size=4, blocks=30)
    model.check(work.step(PREFILL, [5, 4], logits=1))
    bucket = StepShape(kind=VERIFY, tokens=12, sequences=3, logit_rows=12)
    model.check(work.step(VERIFY, [4, 3]), bucket)


def test_long_contexts_are_merged_from_their_splits() -> None:
    model = Model(llama())
    work = Sequences([36, 18, 3], vocabulary=70, block_size=4, blocks=60)
    model.check(work.step(PREFILL, [34, 15, 1], logits=1))
    for _ in range(2):  # the second sequence is a whole split, then begins the next
        model.check(work.step(DECODE, [1, 1, 1]))


@pytest.mark.parametrize("quantization", Quantization)
def test_splits_are_added_up_by_one_program_or_by_whoever_reads_them(
    monkeypatch: pytest.MonkeyPatch, quantization: Quantization
) -> None:
    """One program where there are many rows: each split is multiplied by its scale either way."""
    monkeypatch.setattr(tiling, "SHORTEST_SLICE", 16)
    monkeypatch.setattr(tiling, "UNMERGED_ROWS", 8)
    model = Model(llama(), quantization)
    work = Sequences([12], vocabulary=70, block_size=4, blocks=30)
    for step, merged in ((work.step(PREFILL, [11], logits=1), 1), (work.step(DECODE, [1]), 0)):
        program = step_program(model.config, model.geometry, shape_of(step))
        products = [launch for launch in program if launch.kernel == "linear.linear"]
        split = [launch for launch in products if launch.arguments["splits"] == 4]
        assert len(split) == 3
        assert {launch.constants["MERGE"] for launch in split} == {merged}
        model.check(step)
