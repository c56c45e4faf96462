"""Every model family, with random weights, gives the logits that transformers gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.engine.checkpoints import SETTINGS, backend, decode, prefill
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import Step

SMALL: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CONFIGS = {
    "llama": transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "llama-untied-biases": transformers.LlamaConfig(
        **SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=False
    ),
    "llama-3.1-rope": transformers.LlamaConfig(**SMALL, rope_parameters=LLAMA3_ROPE),
    "llama-linear-rope": transformers.LlamaConfig(
        **SMALL, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    ),
    "mistral-window": transformers.MistralConfig(**SMALL, sliding_window=7),
    "qwen2": transformers.Qwen2Config(**SMALL),
    "qwen2-windows": transformers.Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=6, max_window_layers=1
    ),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=16),
    "gpt2": transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=128),
}
IDS = [(17 * i + 5) % 99 for i in range(24)]
BLOCKS = [5, 2, 9, 1, 7, 3]
"""Out of order, as after a while of serving."""


@pytest.fixture(scope="module", params=CONFIGS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[CpuBackend, np.ndarray]:
    """Our backend, and transformers' logits of every position of IDS."""
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(CONFIGS[request.param]).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            # Norms and biases too: the initial ones and zeros would hide a missing one.
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() == 1 else 0.1))
            assert name
        expected = theirs(torch.tensor([IDS])).logits[0].numpy()
    folder: Path = tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    return backend(folder, SETTINGS), expected


def run(ours: CpuBackend, step: Step) -> np.ndarray:
    shape = shape_of(step)
    ours.buffers.fill(step, shape)
    ours.run_eagerly(shape)
    return ours.logits(shape.logit_rows).copy()


def test_a_whole_prompt_has_the_same_logits_at_every_position(
    model: tuple[CpuBackend, np.ndarray],
) -> None:
    ours, expected = model
    logits = run(ours, prefill(IDS, BLOCKS, logit_rows=len(IDS)))
    np.testing.assert_allclose(logits, expected, atol=2e-4)


def test_chunks_and_single_tokens_continue_what_is_cached(
    model: tuple[CpuBackend, np.ndarray],
) -> None:
    ours, expected = model
    first = run(ours, prefill(IDS[:7], BLOCKS))
    second = run(ours, prefill(IDS[7:18], BLOCKS, start=7))
    rest = [run(ours, decode((IDS[i], i, BLOCKS)))[0] for i in range(18, len(IDS))]
    np.testing.assert_allclose(first[0], expected[6], atol=2e-4)
    np.testing.assert_allclose(second[0], expected[17], atol=2e-4)
    np.testing.assert_allclose(rest, expected[18:], atol=2e-4)
