"""The CUDA backend's poison reaches the blocks it is asked for, on memory that ctypes can write."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.cuda.models import cpu_memory, gpt2, llama, random_weights, settings
from warmgraph_engine.backends.cuda import backend
from warmgraph_engine.backends.cuda.layout import plan_device
from warmgraph_engine.models.config import ModelConfig
from warmgraph_engine.models.weights import weight_specs


@pytest.mark.parametrize("config", [llama(num_hidden_layers=2), gpt2()])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_poisoned_blocks_are_nan_and_no_others(
    config: ModelConfig, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = settings(dtype)
    memory = cpu_memory(config, options, random_weights(config, dtype))
    for name, tensor in memory.items():
        if name.startswith("kv."):
            tensor.zero_()
    before = {name: tensor.clone() for name, tensor in memory.items()}

    def memset(address: int, value: int, size: int, _stream: Any) -> tuple[Any]:
        ctypes.memset(address, value, size)
        return (backend.cuda.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(backend.cuda, "cuMemsetD8Async", memset)
    device = SimpleNamespace(use=lambda: None, stream=None)
    ours = SimpleNamespace(
        _device=device,
        layout=plan_device(config, options, weight_specs(config, ["lm_head.weight"])),
        _addresses={name: tensor.data_ptr() for name, tensor in memory.items()},
    )
    backend.CudaBackend.poison_kv(ours, 3)  # type: ignore[arg-type]
    for name, tensor in memory.items():
        if name.startswith("kv."):
            assert bool(tensor[1:4].isnan().all())
            tensor[1:4] = 0
        assert torch.equal(tensor.nan_to_num(), before[name].nan_to_num()), name
