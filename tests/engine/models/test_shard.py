"""The parts of a model that ranks hold: together all of it, each in the right place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.checkpoints import SETTINGS, tensors, write_checkpoint, write_gpt2_checkpoint
from warmgraph_engine.arena import ArenaLayout
from warmgraph_engine.backends.cpu.loader import load_weights
from warmgraph_engine.backends.cpu.memory import CpuArena
from warmgraph_engine.backends.cuda.loader import Chunk, plan
from warmgraph_engine.backends.settings import plan_arena
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.models.shard import shard
from warmgraph_engine.models.weights import weight_specs


class Places:
    """Regions, and where they are in a piece of memory that begins at 0."""

    def __init__(self, layout: ArenaLayout) -> None:
        self.regions = {region.name: region for region in layout}

    def __getitem__(self, name: str) -> int:
        return self.regions[name].offset


def loaded(checkpoint: Checkpoint, rank: int) -> dict[str, torch.Tensor]:
    """The weights of one of two ranks on a CPU, by region."""
    config = shard(checkpoint.config, 2)
    specs = weight_specs(config, checkpoint.tensors.keys())
    arena = CpuArena(plan_arena(config, SETTINGS, specs))
    load_weights(
        arena,
        checkpoint,
        specs,
        quantizes=lambda _: False,
        rank=rank,
        ranks=2,
        progress=lambda: None,
    )
    return {spec.name: arena.tensor(f"weights.{spec.name}") for spec in specs}


def test_each_rank_has_whole_heads_and_its_columns_of_what_follows(tmp_path: Path) -> None:
    checkpoint = Checkpoint(write_checkpoint(tmp_path))
    stored = {
        name.removeprefix("model.layers.0."): torch.from_numpy(array)
        for name, array in tensors().items()
    }
    for rank in (0, 1):
        weights = loaded(checkpoint, rank)
        heads, kv_heads, middle = (slice(rank * n, (rank + 1) * n) for n in (16, 8, 24))
        qkv = [
            stored[f"self_attn.{part}_proj.weight"][rows]
            for part, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        ]
        assert torch.equal(weights["layers.0.qkv.weight"], torch.cat(qkv))
        output = stored["self_attn.o_proj.weight"][:, heads]
        assert torch.equal(weights["layers.0.output.weight"], output)
        gate_up = [stored[f"mlp.{part}_proj.weight"][middle] for part in ("gate", "up")]
        assert torch.equal(weights["layers.0.gate_up.weight"], torch.cat(gate_up))
        assert torch.equal(
            weights["layers.0.down.weight"], stored["mlp.down_proj.weight"][:, middle]
        )
        assert torch.equal(weights["embedding"], stored["model.embed_tokens.weight"])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_gpu_gets_the_same_parts(tmp_path: Path, dtype: str) -> None:
    checkpoint = Checkpoint(write_checkpoint(tmp_path))
    config = shard(checkpoint.config, 2)
    specs = weight_specs(config, checkpoint.tensors.keys())
    layout = plan_arena(config, replace(SETTINGS, dtype=dtype), specs)
    for rank in (0, 1):
        memory = bytearray(layout.bytes)
        places = Places(layout)
        for piece in plan(checkpoint, specs, places, dtype, rank=rank, ranks=2):
            if isinstance(piece, Chunk):
                content = piece.path.read_bytes()[piece.offset : piece.offset + piece.bytes]
                memory[piece.address : piece.address + len(content)] = content
                continue
            for address, part in piece.contents():
                memory[address : address + len(part)] = part.tobytes()
        for name, wanted in loaded(checkpoint, rank).items():
            got = np.frombuffer(
                memory, dtype=dtype, count=wanted.numel(), offset=places[f"weights.{name}"]
            )
            assert np.array_equal(got, wanted.numpy().astype(dtype).flatten()), name


def test_a_model_that_cannot_be_shared_is_refused_with_the_reason(tmp_path: Path) -> None:
    llama = Checkpoint(write_checkpoint(tmp_path / "llama")).config
    with pytest.raises(ModelError, match="size 3 does not divide the model's 4 attention heads"):
        shard(llama, 3)
    with pytest.raises(ModelError, match="size 4 does not divide the model's 2 KV heads"):
        shard(llama, 4)
    gpt2 = Checkpoint(write_gpt2_checkpoint(tmp_path / "gpt2")).config
    with pytest.raises(ModelError, match="GPT2LMHeadModel runs on one rank only"):
        shard(gpt2, 2)
