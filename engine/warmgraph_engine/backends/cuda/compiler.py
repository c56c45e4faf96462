"""Kernels to machine code, ahead of time: Triton without a GPU, a stream or torch."""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from warmgraph_engine.backends.cuda.document import Kernel
from warmgraph_engine.backends.cuda.launch import Launch, Pointer

_POINTERS = {
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "int32": "*i32",
    "int64": "*i64",
}

_DIVISOR = 16
"""What Triton knows to use: 16-byte loads of aligned pointers, and rows that start aligned."""


@dataclass(frozen=True, slots=True)
class Binary:
    kernel: Kernel
    code: bytes


class Compiler:
    """Compiles each variant of a kernel once. Used by one thread at a time."""

    def __init__(self, capability: int, dtypes: Mapping[str, str]) -> None:
        """`capability` such as 90; `dtypes` of the regions that launches point at."""
        self._capability, self._dtypes = capability, dtypes
        self._binaries: dict[str, Binary] = {}

    def learn(self, kernel: Kernel, code: bytes) -> None:
        """Take a kernel from a stored image, so that it is never compiled here."""
        self._binaries.setdefault(kernel.variant, Binary(kernel, code))

    def compile(self, launch: Launch) -> Binary:
        """Raises RuntimeError with the compiler's message."""
        types = {
            name: _POINTERS[self._dtypes[value.region]]
            if isinstance(value, Pointer)
            else "i32"
            if isinstance(value, int)
            else "fp32"
            for name, value in launch.arguments.items()
        }
        aligned = sorted(
            name
            for name, value in launch.arguments.items()
            if isinstance(value, Pointer) or (name.endswith("_size") and value % _DIVISOR == 0)
        )
        source = (self._capability, launch.kernel, launch.warps, types, aligned, launch.constants)
        variant = hashlib.sha256(msgspec.json.encode(source, order="sorted")).hexdigest()
        if variant not in self._binaries:
            self._binaries[variant] = self._compile(launch, types, aligned, variant)
        return self._binaries[variant]

    def _compile(
        self, launch: Launch, types: dict[str, str], aligned: list[str], variant: str
    ) -> Binary:
        triton = _triton()
        from triton.backends.compiler import GPUTarget  # noqa: PLC0415
        from triton.compiler import ASTSource  # noqa: PLC0415
        from triton.errors import TritonError  # noqa: PLC0415

        module, _, function = launch.kernel.partition(".")
        triton_kernel = getattr(
            importlib.import_module(f"warmgraph_engine.backends.cuda.kernels.{module}"), function
        )
        constants = dict(launch.constants)
        if "PDL" in triton_kernel.arg_names:
            constants["PDL"] = 1
        place = {name: (index,) for index, name in enumerate(triton_kernel.arg_names)}
        source = ASTSource(
            triton_kernel,
            {
                name: "constexpr" if name in constants else types[name]
                for name in triton_kernel.arg_names
            },
            constexprs={place[name]: value for name, value in constants.items()},
            attrs={place[name]: [["tt.divisibility", _DIVISOR]] for name in aligned},
        )
        try:
            compiled = triton.compile(
                source,
                target=GPUTarget("cuda", self._capability, 32),
                options={"num_warps": launch.warps, "launch_pdl": True},
            )
        except TritonError as error:
            raise RuntimeError(f"{launch.kernel}: {error}") from error
        if compiled.metadata.global_scratch_size or compiled.metadata.profile_scratch_size:
            raise RuntimeError(f"{launch.kernel} wants scratch memory, which the arena has not")
        code: bytes = compiled.asm["cubin"]
        kernel = Kernel(
            variant=variant,
            binary=hashlib.sha256(code).hexdigest(),
            name=compiled.metadata.name,
            shared_bytes=compiled.metadata.shared,
            threads=32 * compiled.metadata.num_warps,
            parameters=tuple(name for name in triton_kernel.arg_names if name not in constants),
        )
        return Binary(kernel, code)


def _triton() -> Any:
    """Triton, with a folder for its files that exists: a pod has no home to write to."""
    import triton  # noqa: PLC0415 (takes a second; a complete cache needs no compiler)

    if "TRITON_CACHE_DIR" not in os.environ and not os.access(Path.home(), os.W_OK):
        triton.knobs.cache.dir = str(Path(tempfile.gettempdir()) / f"triton-{os.getuid()}")
    return triton
