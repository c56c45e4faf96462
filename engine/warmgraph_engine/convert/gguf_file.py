"""Reading a GGUF file: its metadata as plain values, its tensors as float32 arrays.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray


class ConversionError(ValueError):
    """The file cannot be converted; the message says what about it is not supported."""


class GGUFFile:
    """Metadata by key, tensors one at a time (a whole model in float32 may not fit in memory)."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConversionError(f"{path}: no such file")
        try:
            self._reader = GGUFReader(path)
        except (ValueError, IndexError) as error:
            raise ConversionError(f"{path}: not a readable GGUF file: {error}") from error
        self.path = path

    def get(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def require(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise ConversionError(f"{self.path}: metadata has no {key}")
        return value

    def number(self, key: str) -> float:
        """A float32 of the metadata as its author wrote it: 1e-5, not 9.99999974e-06."""
        return float(str(np.float32(self.require(key))))

    def names(self) -> list[str]:
        return [tensor.name for tensor in self._reader.tensors]

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """(GGUF name, float32 array with rows first, as in torch)."""
        for tensor in self._reader.tensors:
            try:
                yield tensor.name, dequantize(tensor.data, tensor.tensor_type)
            except NotImplementedError as error:
                raise ConversionError(
                    f"{self.path}: tensor {tensor.name} has type {tensor.tensor_type.name}, "
                    "which cannot be dequantized"
                ) from error
