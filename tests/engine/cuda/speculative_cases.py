"""The benchmark of speculative decoding measures what it says, on both devices.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import checkpoints, prompts, speculative
from tests.engine.cuda.gpu import InterpretedGpu
from warmgraph_api.resource import Device
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.backends.open import open_backend

TOKENS = 5
SHAPE = {**checkpoints.SHAPES["tiny"], "vocab_size": 288, "num_hidden_layers": 1}
"""Soon interpreted."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gpu = InterpretedGpu()
    gpu.install(monkeypatch)

    def opened(*arguments: Any, **options: Any) -> Any:
        backend, facts = open_backend(*arguments, **options)
        if isinstance(backend, CudaBackend):
            gpu.map(*backend._launcher._sets)
        return backend, facts

    monkeypatch.setattr(speculative, "open_backend", opened)
    yield
    gc.collect()  # the graphs, while there is still a driver to destroy them


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("device", list(Device))
def test_of_what_weights_recite_all_drafts_are_right_or_none_is(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "RING", 4)
    monkeypatch.setitem(checkpoints.SHAPES, "tiny", SHAPE)
    monkeypatch.setattr(speculative, "BATCHES", (2,))
    monkeypatch.setattr(speculative, "DRAFTS", (2,))
    monkeypatch.setitem(speculative.DTYPES, device, "float32")  # which is interpreted rightly
    checkpoints.write(tmp_path, "tiny", successors=prompts.successors(SHAPE["vocab_size"]))
    workloads = prompts.recited(2, TOKENS)
    engine = speculative.Engine(device, tmp_path, workloads, tokens=TOKENS)
    figures = speculative.measure(engine, workloads, tokens=TOKENS, rounds=1)
    counts = {name: figures[name] for name in figures if ".batch_" in name}
    # The first answer comes from the prompt, and a draft is no good for the last. On a GPU the
    # second comes from a step that was handed over before the first was read.
    assert counts == {
        "right.k2.batch_2.drafted": 4,
        "right.k2.batch_2.accepted": 4,
        "wrong.k2.batch_2.drafted": {Device.CPU: 10, Device.CUDA: 6}[device],
        "wrong.k2.batch_2.accepted": 0,
    }
