"""GPT-2: learned positions, layer norms, one fused projection for q, k and v."""

from __future__ import annotations

import torch
from torch.nn.functional import gelu, layer_norm, silu

from warmgraph_engine.models.config import ModelConfig
from warmgraph_engine.models.layers import add_linear, attend, linear, write_logits
from warmgraph_engine.models.steps import Memory, StepFunction, StepInputs


def step_function(config: ModelConfig) -> StepFunction:
    width, eps = (config.hidden,), config.norm_eps

    def step(memory: Memory, inputs: StepInputs) -> None:
        def norm(x: torch.Tensor, name: str) -> torch.Tensor:
            weight, bias = (memory.tensor(f"weights.{name}.{part}") for part in ("weight", "bias"))
            return layer_norm(x, width, weight, bias, eps)

        hidden = memory.tensor("weights.embedding").index_select(0, inputs.input_ids)
        hidden += memory.tensor("weights.positions").index_select(0, inputs.positions)
        for layer in range(config.layers):
            name = f"layers.{layer}"
            x = norm(hidden, f"{name}.attention_norm")
            joined = linear(x, memory, f"{name}.qkv", bias=True)
            heads = joined.view(len(x), 3, config.heads, config.head_dim)
            query, key, value = heads.unbind(1)
            attended = attend(
                query, key, value, memory=memory, inputs=inputs, config=config, layer=layer
            )
            add_linear(hidden, attended, memory, f"{name}.output", bias=True, ranks=1)
            x = linear(norm(hidden, f"{name}.mlp_norm"), memory, f"{name}.up", bias=True)
            if config.activation == "silu":
                x = silu(x)
            else:
                x = gelu(x, approximate="tanh" if config.activation == "gelu_tanh" else "none")
            add_linear(hidden, x, memory, f"{name}.down", bias=True, ranks=1)
        wanted = hidden.index_select(0, inputs.logit_rows)
        write_logits(norm(wanted, "norm"), memory, inputs, config)

    return step
