"""Weights reach the arena unchanged, or converted as torch converts them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from cuda.bindings import driver as cuda

from tests.engine.cuda.models import llama_values, random_weights
from tests.gpu.conftest import Served
from tests.gpu.test_backend import GPT2
from warmgraph_engine.backends.cpu.memory import DTYPES
from warmgraph_engine.backends.cuda.driver import check

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("values", "dtype", "stored"),
    [
        (llama_values(), "bfloat16", "bfloat16"),
        (llama_values(), "bfloat16", "float32"),
        (llama_values(), "float16", "bfloat16"),
        (llama_values(), "float32", "float16"),
        (GPT2, "bfloat16", "float32"),
        # a tensor larger than a pinned buffer
        (llama_values(vocab_size=20000, hidden_size=1024), "bfloat16", "bfloat16"),
    ],
)
def test_every_weight_is_in_its_place(
    serve: Callable[..., Served], values: dict[str, object], dtype: str, stored: str
) -> None:
    model = serve(values, dtype, stored)
    for name, tensor in random_weights(model.config, stored).items():
        want = tensor.to(DTYPES[dtype])
        got = torch.empty_like(want)
        address = model.backend._addresses[name]
        check(cuda.cuMemcpyDtoH(got.data_ptr(), address, got.numel() * got.element_size()))
        assert torch.equal(got, want), name


def test_rope_tables_are_the_cpus(serve: Callable[..., Served]) -> None:
    model = serve(llama_values())
    for name in ("cos", "sin"):
        want = model.reference.tensor(f"weights.rope.{name}")[:, 32:].contiguous()
        got = torch.empty_like(want)
        address = model.backend._addresses[f"weights.rope.{name}"]
        check(cuda.cuMemcpyDtoH(got.data_ptr(), address, got.numel() * 4))
        assert np.array_equal(got.numpy(), want.numpy())
