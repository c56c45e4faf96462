"""Weights as fp8: the bytes that torch would make, and a model that hardly notices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.engine.checkpoints import (
    SETTINGS,
    backend,
    prefill,
    write_checkpoint,
    write_gpt2_checkpoint,
)
from tests.engine.models.test_smollm2 import PROMPTS
from warmgraph_api.resource import Quantization
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.models import fp8
from warmgraph_engine.models.weights import weight_specs
from warmgraph_engine.shapes import shape_of

FP8 = replace(SETTINGS, quantization=Quantization.FP8)
IDS = [(17 * i + 5) % 97 for i in range(24)]
BOUND = 0.2
"""Of the relative error of all logits together. Ten models like these, with other random weights,
were off by 5 to 15 %: they have few and large weights."""


def torchs(values: np.ndarray) -> np.ndarray:
    numbers = torch.from_numpy(np.ascontiguousarray(values, np.float32))
    return numbers.to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def spread_out(spread: float) -> np.ndarray:
    """A matrix whose exponents are spread so far."""
    random = np.random.default_rng(1)
    sizes = np.exp(random.standard_normal((200, 700)) * spread)
    return random.standard_normal((200, 700)) * sizes


def test_every_byte_stands_for_what_it_is_in_torch() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    want = codes.view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(fp8.numbers(), want)


@pytest.mark.parametrize("spread", [0.01, 1, 4])
def test_a_matrix_is_rounded_as_torch_rounds_it(spread: float) -> None:
    """`spread` of the exponents: numbers without a leading one, and such that become zero, too."""
    matrix = spread_out(spread).astype(np.float32)
    codes, scales = fp8.quantize_rows(matrix)
    assert (np.frexp(scales)[0] == 0.5).all()  # powers of two
    largest = np.abs(matrix).max(axis=1) / scales
    assert ((largest <= 448) & (largest > 224)).all()
    np.testing.assert_array_equal(codes, torchs(matrix / scales[:, None]))


@pytest.mark.parametrize("spread", [0.01, 4])
def test_a_bfloat16_matrix_needs_no_wider_type(spread: float) -> None:
    matrix = torch.from_numpy(spread_out(spread)).to(torch.bfloat16)
    bits = matrix.view(torch.uint16).numpy()
    before = bits.copy()
    wide = fp8.quantize_rows(matrix.float().numpy())
    for ours, want in zip(fp8.quantize_bfloat16_rows(bits), wide, strict=True):
        np.testing.assert_array_equal(ours, want)
    np.testing.assert_array_equal(bits, before)


def test_every_bfloat16_beside_the_largest_number_is_rounded_as_torch_rounds_it() -> None:
    """All bits that a number can have, in rows whose largest number is 448 times a power of two."""
    every = torch.arange(0x7F80, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).float()
    for exponent in (-90, 0, 90):
        largest = 448 * 2.0**exponent
        row = every[every <= largest].numpy()[None, :]
        codes, scales = fp8.quantize_rows(row)
        assert scales == 2.0**exponent
        np.testing.assert_array_equal(codes, torchs(row.astype(np.float64) / 2.0**exponent))


def test_ties_go_to_the_even_number_and_what_is_beside_a_tie_does_not() -> None:
    magnitudes = fp8.numbers()[:127]
    ties = (magnitudes[1:] + magnitudes[:-1]) / 2
    around = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, 448), magnitudes])
    row = np.concatenate([around, -around]).astype(np.float32)[None, :]
    codes, scales = fp8.quantize_rows(row)
    assert scales == 1
    np.testing.assert_array_equal(codes, torchs(row))
    assert codes[0, : ties.size].tolist() == [n + n % 2 for n in range(ties.size)]


def test_no_number_is_off_by_more_than_half_a_step() -> None:
    matrix = np.random.default_rng(2).standard_normal((50, 1000)).astype(np.float32)
    codes, scales = fp8.quantize_rows(matrix)
    error = np.abs(fp8.dequantize_rows(codes, scales) - matrix)
    # 3 bits of mantissa; below the smallest exponent steps are equal.
    allowed = np.maximum(np.abs(matrix) / 16, scales[:, None] * 2.0**-10)
    assert (error <= allowed * (1 + 1e-6)).all()


def test_zeros_stay_zeros_and_what_is_no_number_stays_none() -> None:
    matrix = np.zeros((4, 8), np.float32)
    matrix[1, 3] = np.nan
    matrix[2, 3] = -np.inf
    matrix[3, 3] = 1e-45
    numbers = fp8.dequantize_rows(*fp8.quantize_rows(matrix))
    assert not numbers[0].any()
    assert not np.isfinite(numbers[1]).any()
    assert not np.isfinite(numbers[2, 3])
    assert not numbers[3].any()


def logits(ours: CpuBackend, ids: list[int] = IDS) -> np.ndarray:
    """Of every position, whose KV goes to blocks in no order."""
    step = prefill(ids, [5, 2, 9, 1, 7, 3], logit_rows=len(ids))
    ours.buffers.fill(step, shape_of(step))
    ours.run_eagerly(shape_of(step))
    return ours.logits(len(ids)).copy()


Write = Callable[[Path], Path]


@pytest.mark.parametrize("write", [write_checkpoint, write_gpt2_checkpoint])
def test_a_quantized_model_gives_nearly_the_logits_of_the_original(
    tmp_path: Path, write: Write
) -> None:
    folder = write(tmp_path)
    original, quantized = logits(backend(folder)), logits(backend(folder, FP8))
    error = np.linalg.norm(quantized - original) / np.linalg.norm(original)
    assert 0 < error < BOUND


@pytest.mark.parametrize("write", [write_checkpoint, write_gpt2_checkpoint])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_projections_are_rounded_and_nothing_else(tmp_path: Path, write: Write, dtype: str) -> None:
    """Embedding, head, norms and biases stay what they are."""
    folder = write(tmp_path)
    original = backend(folder, replace(SETTINGS, dtype=dtype))
    quantized = backend(folder, replace(FP8, dtype=dtype))
    checkpoint = Checkpoint(folder)
    exact = backend(folder)
    for spec in weight_specs(checkpoint.config, checkpoint.tensors.keys()):
        name = f"weights.{spec.name}"
        want = original.arena.tensor(name)
        if name.endswith(("qkv.weight", "output.weight", "up.weight", "down.weight")):
            assert spec.projection
            matrix = exact.arena.tensor(name).numpy()
            rounded = fp8.dequantize_rows(*fp8.quantize_rows(matrix))
            want = torch.from_numpy(rounded).to(want.dtype)
        assert torch.equal(quantized.arena.tensor(name), want), name


@pytest.mark.model
@pytest.mark.timeout(600)
def test_a_real_model_goes_on_as_the_original_would(smollm2: Path) -> None:
    """The bounds are twice what was seen: a divergence of 0.03, and 95 % of the tokens."""
    settings = replace(SETTINGS, block_size=16, kv_cache_bytes=32 << 20, max_batch_tokens=96)
    settings = replace(settings, max_model_length=96)
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    prompts = [tokenizer.encode(prompt).ids for prompt in PROMPTS]
    both = []
    for quantization in Quantization:
        ours = backend(smollm2, replace(settings, quantization=quantization))
        rows = np.concatenate([logits(ours, ids) for ids in prompts])
        both.append(torch.from_numpy(rows).log_softmax(dim=1))
        del ours
    original, quantized = both
    divergence = (original.exp() * (original - quantized)).sum(dim=1).mean()
    assert 0 < divergence < 0.06
    assert (original.argmax(dim=1) == quantized.argmax(dim=1)).float().mean() > 0.86
