"""Small models with random weights, and steps over them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from warmgraph_api.report import StepKind
from warmgraph_engine.arena import Region
from warmgraph_engine.backends.cpu.memory import DTYPES
from warmgraph_engine.backends.cuda import slots
from warmgraph_engine.backends.cuda.inputs import InputBuffers
from warmgraph_engine.backends.cuda.layout import plan_device, plan_host, plan_results
from warmgraph_engine.backends.settings import BackendSettings, plan_arena
from warmgraph_engine.buffers import StaticBuffers
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.models import fp8
from warmgraph_engine.models.config import ModelConfig, parse_config
from warmgraph_engine.models.rope import rope_tables
from warmgraph_engine.models.weights import weight_specs
from warmgraph_engine.step import SlotCounts, Step, StepRow


def llama(**changes: object) -> ModelConfig:
    values = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 70,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512,
        "torch_dtype": "float32",
    }
    return parse_config({**values, **changes})


def gpt2(**changes: object) -> ModelConfig:
    values = {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 65,
        "n_embd": 48,
        "n_layer": 1,
        "n_head": 3,
        "n_positions": 512,
        "layer_norm_epsilon": 1e-5,
        "torch_dtype": "float32",
    }
    return parse_config({**values, **changes})


def settings(dtype: str = "float32", **changes: Any) -> BackendSettings:
    values: dict[str, Any] = {
        "block_size": 4,
        "kv_cache_bytes": 1 << 20,
        "max_model_length": 128,
        "max_batch_size": 4,
        "max_batch_tokens": 80,
    }
    return BackendSettings(dtype=dtype, **{**values, **changes})


def random_weights(config: ModelConfig, dtype: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """By region, with values that keep activations near one."""
    generator = torch.Generator().manual_seed(seed)
    names = ["lm_head.weight"]
    weights = {}
    for spec in weight_specs(config, names):
        spread = 0.5 if len(spec.shape) == 1 else spec.shape[-1] ** -0.5
        values = torch.randn(spec.shape, generator=generator) * spread
        if "norm" in spec.name and not spec.name.endswith("bias"):
            values += 1
        weights[f"weights.{spec.name}"] = values.to(DTYPES[dtype])
    return weights


def quantized(
    config: ModelConfig, options: BackendSettings, weights: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The weights as the CUDA backend holds them: as they are, if the options do not quantize."""
    result = dict(weights)
    for spec in weight_specs(config, ["lm_head.weight"]):
        if options.quantizes(spec):
            name = f"weights.{spec.name}"
            codes, scales = fp8.quantize_rows(weights[name].float().numpy())
            result[name] = torch.from_numpy(codes).view(torch.float8_e4m3fn)
            result[f"weights.{spec.scale_name}"] = torch.from_numpy(scales)
    return result


def widened(
    config: ModelConfig, options: BackendSettings, weights: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The numbers that these stand for, as the CPU backend holds them."""
    result = quantized(config, options, weights)
    for spec in weight_specs(config, ["lm_head.weight"]):
        if options.quantizes(spec):
            name = f"weights.{spec.name}"
            scales = result.pop(f"weights.{spec.scale_name}")
            wide = result[name].float() * scales[:, None]
            result[name] = wide.to(weights[name].dtype)
    return result


class Reference:
    """The CPU backend's step function over its own memory."""

    def __init__(
        self, config: ModelConfig, options: BackendSettings, weights: dict[str, torch.Tensor]
    ) -> None:
        from warmgraph_engine.models.steps import step_function

        layout = plan_arena(config, options, weight_specs(config, ["lm_head.weight"]))
        self._memory = {
            region.name: torch.zeros(region.shape, dtype=DTYPES[region.dtype]) for region in layout
        }
        self._memory.update(widened(config, options, weights))
        if config.rope is not None:
            tables = rope_tables(config.rope, config.head_dim, options.max_model_length)
            for name, table in zip(("cos", "sin"), tables, strict=True):
                self._memory[f"weights.rope.{name}"].copy_(torch.from_numpy(table))
        arrays = {
            name.partition(".")[2]: tensor.numpy()
            for name, tensor in self._memory.items()
            if name.startswith("buffers.")
        }
        self._buffers = StaticBuffers(arrays, block_size=options.block_size)
        self._step = step_function(config)

    def tensor(self, name: str) -> torch.Tensor:
        return self._memory[name]

    def run(self, step: Step) -> torch.Tensor:
        """Logits (rows, vocabulary), float32."""
        from warmgraph_engine.backends.cpu import kernels  # noqa: F401 (registers operations)
        from warmgraph_engine.models.steps import StepInputs
        from warmgraph_engine.shapes import shape_of

        shape = shape_of(step)
        self._buffers.fill(step, shape)
        with torch.inference_mode():
            self._step(self, StepInputs(self, shape))
        return self._memory["buffers.logits"][: shape.logit_rows].clone()


def regions(config: ModelConfig, options: BackendSettings) -> dict[str, Region]:
    """By name, whatever a step's launches may point at."""
    layouts = (
        plan_device(config, options, weight_specs(config, ["lm_head.weight"])),
        plan_host(config, options),
        plan_results(options),
    )
    return {region.name: region for layout in layouts for region in layout}


def cpu_memory(
    config: ModelConfig, options: BackendSettings, weights: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The CUDA backend's regions as CPU tensors; whatever no step has written is NaN."""
    memory = {}
    for region in regions(config, options).values():
        tensor = torch.zeros(region.shape, dtype=DTYPES[region.dtype])
        if tensor.is_floating_point():
            tensor.fill_(float("nan"))
        memory[region.name] = tensor
    memory.update(quantized(config, options, weights))
    if config.rope is not None:
        half = config.head_dim // 2
        cos, sin = rope_tables(config.rope, config.head_dim, options.max_model_length)
        for name, table in (("cos", cos), ("sin", sin)):
            memory[f"weights.rope.{name}"].copy_(torch.from_numpy(table[:, half:].copy()))
    return memory


class SlotRows:
    """What steps keep for slots, in tensors by region."""

    def __init__(self, memory: dict[str, torch.Tensor]) -> None:
        self._memory = memory

    def set_bias(self, slot: int, bias: Mapping[int, float]) -> None:
        self._memory["slots.bias"][slot] = torch.from_numpy(slots.bias_row(bias, self._size))

    def set_counts(self, slot: int, counts: SlotCounts) -> None:
        self._memory["slots.counts"][slot] = torch.from_numpy(slots.counts_row(counts, self._size))

    @property
    def _size(self) -> int:
        return self._memory["slots.bias"].shape[1]


def host_buffers(memory: dict[str, torch.Tensor], block_size: int) -> InputBuffers:
    arrays = {
        name.partition(".")[2]: tensor.numpy()
        for name, tensor in memory.items()
        if name.startswith("host.")
    }
    return InputBuffers([arrays], lambda: 0, SlotRows(memory), block_size=block_size)


class Sequences:
    """Random sequences with KV blocks in random order, and the steps that work them."""

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        vocabulary: int,
        block_size: int,
        blocks: int,
        seed: int = 0,
    ) -> None:
        chance = random.Random(seed)
        free = list(range(1, blocks))
        chance.shuffle(free)
        self.tokens = [[chance.randrange(vocabulary) for _ in range(n)] for n in lengths]
        self.tables = [[free.pop() for _ in range(-(-n // block_size))] for n in lengths]
        self.done = [0] * len(lengths)

    def step(self, kind: StepKind, counts: Sequence[int], logits: int | None = None) -> Step:
        """The next counts[i] tokens of sequence i, 0 to leave it out; logits of the last one."""
        rows = []
        for i, count in enumerate(counts):
            if count:
                start = self.done[i]
                rows.append(
                    StepRow(
                        token_ids=self.tokens[i][start : start + count],
                        start_position=start,
                        block_table=BlockTable(self.tables[i]),
                        logit_rows=count if logits is None else logits,
                    )
                )
                self.done[i] += count
        return Step(kind=kind, rows=rows)


def relative_error(got: np.ndarray | torch.Tensor, want: torch.Tensor) -> float:
    """The worst row's; NaN if anything is NaN."""
    difference = torch.as_tensor(got) - want
    return float((difference.norm(dim=1) / want.norm(dim=1)).max())


def llama_values(**changes: object) -> dict[str, object]:
    """config.json of a Llama whose dimensions real models have, at a small depth."""
    values: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 1000,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }
    return {**values, **changes}


def checkpoint_tensors(
    config: ModelConfig, weights: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The weights under the checkpoint's names."""
    heads = [config.heads * config.head_dim, *[config.kv_heads * config.head_dim] * 2]
    tensors = {}
    for spec in weight_specs(config, ["lm_head.weight"]):
        joined = weights[f"weights.{spec.name}"]
        sizes = {1: [len(joined)], 2: [len(joined) // 2] * 2, 3: heads}[len(spec.parts)]
        for name, part in zip(spec.parts, torch.split(joined, sizes), strict=True):
            tensors[name] = part.t().contiguous() if spec.transposed else part.contiguous()
    return tensors
