"""Weights that become fp8 on their way to the GPU's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.engine.cuda.models import llama, settings
from warmgraph_api.resource import Quantization
from warmgraph_engine.backends.cpu.memory import DTYPES
from warmgraph_engine.backends.cuda import quantized
from warmgraph_engine.backends.cuda.layout import plan_device
from warmgraph_engine.backends.cuda.quantized import quantized_pieces
from warmgraph_engine.checkpoint.safetensors_file import SafetensorsFile
from warmgraph_engine.models import fp8
from warmgraph_engine.models.weights import WeightSpec, weight_specs

ROWS, COLUMNS, BEFORE = 37, 24, 5
"""Of the tensor, and rows of the projection that another tensor fills."""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_row_arrives_once_with_its_scale(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, transposed: bool
) -> None:
    monkeypatch.setattr(quantized, "PIECE_NUMBERS", 10 * COLUMNS)
    matrix = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    matrix = matrix.to(DTYPES[dtype])
    save_file({"w": matrix.t().contiguous() if transposed else matrix}, tmp_path / "file")
    spec = WeightSpec(
        name="a.weight",
        shape=(BEFORE + ROWS, COLUMNS),
        parts=("v", "w"),
        transposed=transposed,
        projection=True,
    )
    memory = np.full((2, 4096), 0xEE, np.uint8)
    addresses: Any = {"weights.a.weight": 0, "weights.a.scale": 4096}
    stored = SafetensorsFile(tmp_path / "file").tensors["w"]
    pieces = list(quantized_pieces(stored, spec, addresses, first_row=BEFORE))
    assert len(pieces) == 4
    written = 0
    for piece in pieces:
        for address, content in piece.contents():
            assert (memory.reshape(-1)[address : address + content.size] == 0xEE).all()
            memory.reshape(-1)[address : address + content.size] = content
            written += content.size
    codes, scales = fp8.quantize_rows(matrix.float().numpy())
    numbers, factors = memory[0, BEFORE * COLUMNS :], memory[1, BEFORE * 4 :]
    np.testing.assert_array_equal(numbers[: codes.size].reshape(codes.shape), codes)
    np.testing.assert_array_equal(factors[: scales.nbytes].view(np.float32), scales)
    assert written == codes.size + scales.nbytes


def test_projections_take_half_the_memory_and_the_rest_as_much_as_before() -> None:
    config = llama(attention_bias=True)
    specs = weight_specs(config, ["lm_head.weight"])
    plain = plan_device(config, settings("bfloat16"), specs)
    small = plan_device(config, settings("bfloat16", quantization=Quantization.FP8), specs)
    for spec in specs:
        before, after = plain[f"weights.{spec.name}"], small[f"weights.{spec.name}"]
        assert after.shape == before.shape
        if spec.projection:
            assert 2 * after.bytes == before.bytes
            scale = small[f"weights.{spec.scale_name}"]
            assert (scale.dtype, scale.shape) == ("float32", spec.shape[:1])
        else:
            assert after.dtype == before.dtype
    kept = {region.name for region in plain}
    assert {r.name for r in small} - kept == {
        f"weights.{spec.scale_name}" for spec in specs if spec.projection
    }
