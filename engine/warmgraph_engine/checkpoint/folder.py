"""A checkpoint folder: config.json and the safetensors files, one or many with an index."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from warmgraph_engine.checkpoint.digest import weights_digest
from warmgraph_engine.checkpoint.safetensors_file import SafetensorsFile, StoredTensor
from warmgraph_engine.models.config import ModelError, read_config


class Checkpoint:
    """Opens every file and checks the headers; reads no weights yet. Raises ModelError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise ModelError(f"{folder}: no such folder")
        self.config, self.raw_config = read_config(folder)
        self._files = [SafetensorsFile(path) for path in _weight_files(folder)]
        self._digest = ""
        self.tensors: dict[str, StoredTensor] = {}
        for file in self._files:
            self.tensors.update(file.tensors)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self._files)

    def read_digest(self, progress: Callable[[], None]) -> None:
        """Have the digest ready; `progress` is called after each file."""
        self._digest = weights_digest(self._files, progress)

    @property
    def digest(self) -> str:
        """Of the weights, see digest.py."""
        if not self._digest:
            self.read_digest(lambda: None)
        return self._digest

    def tensor(self, name: str) -> StoredTensor:
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelError(f"{self.folder}: tensor {name} is missing from the weights") from None


def _weight_files(folder: Path) -> list[Path]:
    single = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise ModelError(f"{folder}: has neither model.safetensors nor {index.name}")
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{index}: is damaged") from error
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise ModelError(f"{index}: names {name}, which is not in the folder")
    return [folder / name for name in names]
