"""Checkpoint folders: what is read, and what is said of those that cannot be served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.engine.checkpoints import CONFIG, backend, prefill, tensors, write_checkpoint
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.shapes import shape_of


def logits(folder: Path) -> np.ndarray:
    ours, step = backend(folder), prefill([1, 2, 3], [1])
    ours.buffers.fill(step, shape_of(step))
    ours.run_eagerly(shape_of(step))
    return ours.logits(1).copy()


def test_a_sharded_checkpoint_is_the_same_model(tmp_path: Path) -> None:
    whole = write_checkpoint(tmp_path / "whole")
    sharded = write_checkpoint(tmp_path / "sharded")
    (sharded / "model.safetensors").unlink()
    names = sorted(tensors())
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, some in parts.items():
        save_file({name: tensors()[name] for name in some}, sharded / file)
    weight_map = {name: file for file, some in parts.items() for name in some}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    np.testing.assert_array_equal(logits(sharded), logits(whole))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_weights_are_widened(tmp_path: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    folder = write_checkpoint(tmp_path, torch_dtype=dtype)
    weights = {n: torch.from_numpy(t).to(getattr(torch, dtype)) for n, t in tensors().items()}
    save_torch(weights, folder / "model.safetensors")
    rounded = write_checkpoint(tmp_path / "rounded")
    save_file({n: t.float().numpy() for n, t in weights.items()}, rounded / "model.safetensors")
    np.testing.assert_array_equal(logits(folder), logits(rounded))


def test_an_index_cannot_point_out_of_the_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = {"weight_map": {"x": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="not in the folder"):
        Checkpoint(folder)


def test_a_truncated_download_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    data = (folder / "model.safetensors").read_bytes()
    for length in (0, 5, 100, len(data) - 1):
        (folder / "model.safetensors").write_bytes(data[:length])
        with pytest.raises(ModelError, match=r"model\.safetensors"):
            Checkpoint(folder)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj\.weight is missing"):
        backend(folder)


def test_weights_that_do_not_fit_the_config_are_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, intermediate_size=64)
    with pytest.raises(ModelError, match="mlp"):
        backend(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM is not supported"),
        ({"architectures": None}, "not supported"),
        ({"hidden_act": "relu6"}, "activation 'relu6'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope scaling 'yarn'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "is quantized .*: gptq"),
        (
            {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}},
            "fp8\\), which is not supported; --quantization fp8 quantizes an unquantized one",
        ),
        ({"quantization_config": ["fp8"]}, "is quantized .*: unknown"),
        ({"torch_dtype": "int8"}, "type 'int8'"),
    ],
)
def test_an_unsupported_model_says_what_about_it(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        Checkpoint(write_checkpoint(tmp_path, **change))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b'{"architectures": 3}'])
def test_a_damaged_config_is_named(tmp_path: Path, content: bytes) -> None:
    folder = write_checkpoint(tmp_path)
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json|not supported"):
        Checkpoint(folder)


def test_a_missing_field_of_the_config_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    without = {name: value for name, value in CONFIG.items() if name != "hidden_size"}
    (folder / "config.json").write_text(json.dumps(without))
    with pytest.raises(ModelError, match="hidden_size is missing"):
        Checkpoint(folder)


def test_other_weights_have_another_digest(tmp_path: Path) -> None:
    first = Checkpoint(write_checkpoint(tmp_path / "a")).digest
    assert Checkpoint(write_checkpoint(tmp_path / "moved-elsewhere")).digest == first
    assert Checkpoint(write_checkpoint(tmp_path / "c", seed=1)).digest != first


def test_a_context_longer_than_the_model_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, max_position_embeddings=32)
    with pytest.raises(ModelError, match="--max-model-length 64 is above the model's 32"):
        backend(folder)
