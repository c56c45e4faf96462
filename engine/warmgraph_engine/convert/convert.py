"""GGUF file → Hugging Face checkpoint folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from warmgraph_engine.convert import llama
from warmgraph_engine.convert.gguf_file import ConversionError, GGUFFile
from warmgraph_engine.convert.tokenizer import tokenizer, tokenizer_config


def convert_gguf(
    source: Path, destination: Path, *, progress: Callable[[str], None] = lambda _: None
) -> None:
    """Write `destination` (a folder that must not exist yet) from the GGUF file `source`.

    Weights become float16. The folder appears whole or not at all. Raises ConversionError with
    what is not supported, before anything is written.
    """
    if destination.exists():
        raise ConversionError(f"{destination}: already exists")
    file = GGUFFile(source)
    architecture = file.require("general.architecture")
    if architecture != "llama":
        raise ConversionError(f"{source}: architecture {architecture!r}; only llama is supported")
    config = llama.config(file)
    text_tokenizer = tokenizer(file)
    tensors = {}
    for name, values in file.tensors():
        target, arranged = llama.tensor(name, values, config)
        tensors[target] = arranged.astype(np.float16)
        progress(target)

    staging = destination.with_name(f".{destination.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    save_file(tensors, staging / "model.safetensors", metadata={"format": "pt"})
    # save_file makes it readable by its owner alone; pods run as some other user.
    (staging / "model.safetensors").chmod(0o644)
    text_tokenizer.save(str(staging / "tokenizer.json"))
    _write_json(staging / "config.json", config)
    _write_json(staging / "tokenizer_config.json", tokenizer_config(file))
    _write_json(staging / "generation_config.json", _generation_config(config))
    staging.rename(destination)


def _generation_config(config: dict[str, Any]) -> dict[str, Any]:
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: config[name] for name in names if config[name] is not None}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
