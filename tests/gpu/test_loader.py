"""Weights reach the arena unchanged, or converted as torch converts them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from cuda.bindings import driver as cuda

from tests.engine.cuda.models import llama_values, quantized, random_weights
from tests.gpu.conftest import Served
from tests.gpu.test_backend import GPT2
from warmgraph_api.resource import Quantization
from warmgraph_engine.backends.cpu.memory import DTYPES
from warmgraph_engine.backends.cuda.driver import check

pytestmark = pytest.mark.gpu

NONE, FP8 = Quantization


@pytest.mark.parametrize(
    ("values", "dtype", "stored", "quantization"),
    [
        (llama_values(), "bfloat16", "bfloat16", NONE),
        (llama_values(), "bfloat16", "float32", NONE),
        (llama_values(), "float16", "bfloat16", NONE),
        (llama_values(), "float32", "float16", NONE),
        (GPT2, "bfloat16", "float32", NONE),
        (llama_values(), "bfloat16", "bfloat16", FP8),
        (llama_values(), "float16", "float32", FP8),
        (GPT2, "bfloat16", "float16", FP8),
        # a tensor larger than a pinned buffer
        (llama_values(vocab_size=20000, hidden_size=1024), "bfloat16", "bfloat16", NONE),
        # projections of several pieces
        (llama_values(intermediate_size=6000, hidden_size=1024), "bfloat16", "bfloat16", FP8),
    ],
)
def test_every_weight_is_in_its_place(
    serve: Callable[..., Served],
    values: dict[str, object],
    dtype: str,
    stored: str,
    quantization: Quantization,
) -> None:
    model = serve(values, dtype, stored, quantization)
    weights = quantized(model.config, model.settings, random_weights(model.config, stored))
    for name, tensor in weights.items():
        want = tensor.to(DTYPES[model.backend.layout[name].dtype])
        got = torch.empty_like(want)
        address = model.backend._addresses[name]
        check(cuda.cuMemcpyDtoH(got.data_ptr(), address, got.numel() * got.element_size()))
        assert torch.equal(got.view(torch.uint8), want.view(torch.uint8)), name


def test_rope_tables_are_the_cpus(serve: Callable[..., Served]) -> None:
    model = serve(llama_values())
    for name in ("cos", "sin"):
        want = model.reference.tensor(f"weights.rope.{name}")[:, 32:].contiguous()
        got = torch.empty_like(want)
        address = model.backend._addresses[f"weights.rope.{name}"]
        check(cuda.cuMemcpyDtoH(got.data_ptr(), address, got.numel() * 4))
        assert np.array_equal(got.numpy(), want.numpy())
