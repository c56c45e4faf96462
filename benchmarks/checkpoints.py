"""Checkpoints with random weights of known shapes, written in seconds.

python -m benchmarks.checkpoints SHAPE DIR
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from warmgraph_engine.models.config import parse_config
from warmgraph_engine.models.weights import weight_specs

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "1b": {
        **_LLAMA,
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
    },
    "8b": {
        **_LLAMA,
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "rope_theta": 500000.0,
    },
    "tiny": {
        **_LLAMA,
        "vocab_size": 1024,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": 50257,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "layer_norm_epsilon": 1e-5,
        "torch_dtype": "float16",
    },
}
"""`config.json` of 1.1 billion parameters, of Llama-3.1-8B's shape, of a model that any CPU runs in
no time (to try a benchmark, not to measure), and of GPT-2's."""

_BLOCK_NUMBERS = 32 << 20


def write(folder: Path, shape: str, *, successors: NDArray[np.int64] | None = None) -> None:
    """A checkpoint in bfloat16, and a tokenizer with a text for every token. With `successors`, of
    a Llama's shape, the model says after each token the one that stands in its place there."""
    values = SHAPES[shape]
    config = parse_config(dict(values))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    tables = {} if successors is None else _reciting_tables(successors, config.hidden)
    _write_weights(folder / "model.safetensors", config, tables)
    write_tokenizer(folder, config.vocabulary)


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """`tokenizer.json` with a text of its own for every token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"w{number}x" for number in range(vocabulary - len(alphabet)))]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")


def _reciting_tables(successors: NDArray[np.int64], hidden: int) -> dict[str, bytes]:
    """An embedding so large that it drowns what the layers add to it (each about 1 in every
    column), and a head in which the row of each token's successor is the token's own."""
    rows = np.random.default_rng(1).standard_normal((len(successors), hidden), dtype=np.float32)
    head = np.empty_like(rows)
    head[successors] = 0.02 * rows
    return {
        "model.embed_tokens.weight": _bfloat16(32 * rows),
        "lm_head.weight": _bfloat16(head),
    }


def _bfloat16(numbers: NDArray[np.float32]) -> bytes:
    return (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def _write_weights(path: Path, config: Any, tables: Mapping[str, bytes]) -> None:
    """Random ones, but for the `tables`."""
    heads = [config.heads * config.head_dim, *[config.kv_heads * config.head_dim] * 2]
    header: dict[str, Any] = {}
    end = 0
    for spec in weight_specs(config, ["lm_head.weight"]):
        rows = spec.shape[0]
        sizes = {1: [rows], 2: [rows // 2] * 2, 3: heads}[len(spec.parts)]
        for name, size in zip(spec.parts, sizes, strict=True):
            shape = [size, *spec.shape[1:]]
            if spec.transposed:
                shape.reverse()
            begin, end = end, end + 2 * int(np.prod(shape))
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    # The same 64 MiB over and over, each matrix from another place: no two are equal, and 16 GB
    # are written in seconds.
    numbers = np.random.default_rng(0).standard_normal(_BLOCK_NUMBERS, dtype=np.float32) * 0.02
    block = _bfloat16(numbers)
    ones = np.full(1 << 16, 0x3F80, np.uint16).tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number, (name, entry) in enumerate(header.items()):
            if name in tables:
                file.write(tables[name])
                continue
            left = entry["data_offsets"][1] - entry["data_offsets"][0]
            if len(entry["shape"]) == 1:
                file.write(bytes(left) if name.endswith(".bias") else ones[:left])
                continue
            start = 1_000_002 * number % len(block)
            while left:
                part = block[start : start + left]
                file.write(part)
                left -= len(part)
                start = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("shape", choices=tuple(SHAPES))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write(arguments.folder, arguments.shape)


if __name__ == "__main__":
    main()
