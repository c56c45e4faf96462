"""What a step function gets: tensors by region, cut to the shape of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from warmgraph_engine.models.config import Family, ModelConfig
from warmgraph_engine.shapes import StepShape


class Memory(Protocol):
    """The arena as tensors."""

    def tensor(self, name: str) -> torch.Tensor: ...


class StepInputs:
    """The static buffers, cut to a shape."""

    def __init__(self, memory: Memory, shape: StepShape) -> None:
        def cut(name: str, length: int) -> torch.Tensor:
            return memory.tensor(f"buffers.{name}")[:length]

        self.input_ids = cut("input_ids", shape.tokens)
        self.positions = cut("positions", shape.tokens)
        self.slots = cut("slots", shape.tokens)
        self.query_starts = cut("query_starts", shape.sequences + 1)
        self.context_lengths = cut("context_lengths", shape.sequences)
        self.block_tables = cut("block_tables", shape.sequences)
        self.logit_rows = cut("logit_rows", shape.logit_rows)
        self.logits = cut("logits", shape.logit_rows)
        self.counts = memory.tensor("buffers.counts")


StepFunction = Callable[[Memory, StepInputs], None]
"""Runs the model on the inputs and writes `inputs.logits`."""


def step_function(config: ModelConfig) -> StepFunction:
    """The step function of a model's family."""
    from warmgraph_engine.models import gpt2, llama  # noqa: PLC0415 (they import this module)

    make = llama.step_function if config.family is Family.LLAMA else gpt2.step_function
    return make(config)
