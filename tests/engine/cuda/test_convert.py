"""Weights are converted as torch converts them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from warmgraph_engine.backends.cpu.memory import DTYPES
from warmgraph_engine.backends.cuda.convert import to_bfloat16, to_dtype


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("target", ["float32", "float16", "bfloat16"])
def test_every_pair_of_types(source: str, target: str) -> None:
    values = (torch.randn(1000, generator=torch.Generator().manual_seed(1)) * 30).to(DTYPES[source])
    data = memoryview(values.view(torch.uint8).numpy().tobytes())
    want = values.to(DTYPES[target]).view(torch.uint8).numpy()
    assert np.array_equal(to_dtype(data, source, target).view(np.uint8), want)


def test_ties_round_to_even_and_nan_stays_nan() -> None:
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0x7FFFFFFF, 0x7F7FFFFF]
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    result = to_bfloat16(values)
    assert [hex(number) for number in result[[0, 1, 2, 3, 5]]] == [
        *("0x3f80", "0x3f82", "0x3f81", "0x7f80", "0x7f80"),
    ]
    assert np.isnan((result.astype(np.uint32) << 16).view(np.float32)[4])
