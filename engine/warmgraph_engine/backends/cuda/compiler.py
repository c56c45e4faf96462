"""Kernels to machine code, ahead of time: Triton without a GPU, a stream or torch."""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from warmgraph_engine.backends.cuda.document import Kernel
from warmgraph_engine.backends.cuda.launch import Argument, Launch, Pointer

PROCESSES = 8
"""That compile side by side, as far as there are cores. Each needs a second to import Triton, and
a model needs about 20 kernels of half a second each; threads would wait for each other."""

BESIDE_SECONDS = 600.0
"""For all kernels that are compiled with what time others leave: ten seconds of it. Whatever is not
there by then is compiled when it is needed. A process that is killed is not noticed otherwise."""

_POINTERS = {
    "float64": "*fp64",
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float8_e4m3fn": "*fp8e4nv",
    "int32": "*i32",
    "int64": "*i64",
}

_DIVISOR = 16
"""What Triton knows to use: 16-byte loads of aligned pointers, and rows that start aligned."""


_Argument = tuple[str, str, bool]
"""Name and type of a run-time parameter, and whether _DIVISOR divides it."""

_Seen = tuple[str, int, tuple[tuple[str, int | str], ...], tuple[_Argument, ...]]
"""What tells a launch's variant from another's."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """What a kernel is compiled from and for, beside its source."""

    capability: int
    """Of the GPU, such as 90."""
    kernel: str
    """As in a launch."""
    warps: int
    types: dict[str, str]
    """Of the run-time parameters."""
    aligned: list[str]
    """Those that _DIVISOR divides."""
    constants: dict[str, int | str]

    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


@dataclass(frozen=True, slots=True)
class Binary:
    kernel: Kernel
    code: bytes


class Compiler:
    """Compiles each variant of a kernel once. Used by one thread at a time, but for
    compile_beside."""

    def __init__(self, capability: int, dtypes: Mapping[str, str]) -> None:
        """`dtypes` of the regions that launches point at."""
        self._capability, self._dtypes = capability, dtypes
        self._binaries: dict[str, Binary] = {}
        self._learned: set[str] = set()
        self._variants: dict[_Seen, tuple[str, Variant]] = {}

    def learn(self, kernel: Kernel, code: bytes) -> None:
        """Take a kernel from a stored image, so that it is never compiled here."""
        if kernel.variant not in self._binaries:
            self._binaries[kernel.variant] = Binary(kernel, code)
            self._learned.add(kernel.variant)

    def forget_learned(self) -> bool:
        """Compile what images brought along after all; False if that is nothing."""
        learned, self._learned = self._learned, set()
        for digest in learned:
            del self._binaries[digest]
        return bool(learned)

    def knows(self, launches: Iterable[Launch]) -> bool:
        return all(self._variant(launch)[0] in self._binaries for launch in launches)

    def compile(self, launch: Launch) -> Binary:
        """Raises RuntimeError with the compiler's message."""
        digest, variant = self._variant(launch)
        if digest not in self._binaries:
            self._binaries[digest] = compile_variant(variant)
        return self._binaries[digest]

    def compile_together(self, launches: Iterable[Launch]) -> None:
        """Compile what is missing for many launches in several processes. What fails here is
        left to compile(), which tells why."""
        missing = self._missing(launches)
        processes = min(PROCESSES, len(os.sched_getaffinity(0)), len(missing))
        if processes < 2:
            return
        # A start that compiles nothing does without.
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415
        from multiprocessing import get_context  # noqa: PLC0415

        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            futures = [pool.submit(compile_variant, variant) for variant in missing]
        for future in futures:
            if future.exception() is None:
                binary = future.result()
                self._binaries[binary.kernel.variant] = binary

    def compile_beside(self, launches: Iterable[Launch]) -> None:
        """As compile_together, while another thread uses the compiler: in one process, which gets
        the time that nobody else wants. It ends with this one. Raises RuntimeError if it takes too
        long.
        """
        missing = self._missing(launches)
        if not missing:
            return
        from multiprocessing import get_context  # noqa: PLC0415

        deadline = time.monotonic() + BESIDE_SECONDS
        with get_context("spawn").Pool(1, _yield_to_others) as pool:
            pending = [pool.apply_async(compile_variant, (variant,)) for variant in missing]
            for each in pending:
                each.wait(max(0.0, deadline - time.monotonic()))
                if not each.ready():
                    raise RuntimeError(f"not all within {BESIDE_SECONDS:g} s")
                if each.successful():  # what fails is left to compile()
                    binary = each.get()
                    self._binaries.setdefault(binary.kernel.variant, binary)

    def _missing(self, launches: Iterable[Launch]) -> list[Variant]:
        """What is not compiled yet; attention, which takes longest, first."""
        variants = dict(self._variant(launch) for launch in launches)
        missing = [each for digest, each in variants.items() if digest not in self._binaries]
        return sorted(missing, key=lambda variant: variant.kernel)

    def _variant(self, launch: Launch) -> tuple[str, Variant]:
        """With its digest. A step's many launches are of a few variants."""
        arguments = tuple(map(self._argument, launch.arguments.items()))
        seen = (launch.kernel, launch.warps, tuple(launch.constants.items()), arguments)
        found = self._variants.get(seen)
        if found is None:
            variant = Variant(
                capability=self._capability,
                kernel=launch.kernel,
                warps=launch.warps,
                types={name: type_ for name, type_, _ in arguments},
                aligned=sorted(name for name, _, aligned in arguments if aligned),
                constants=dict(launch.constants),
            )
            found = self._variants[seen] = (variant.digest(), variant)
        return found

    def _argument(self, named: tuple[str, Argument]) -> _Argument:
        name, value = named
        if isinstance(value, Pointer):
            return name, _POINTERS[self._dtypes[value.region]], True
        if isinstance(value, int):
            return name, "i32", name.endswith("_size") and value % _DIVISOR == 0
        return name, "fp32", False


def _yield_to_others() -> None:
    """This process gets the time that nobody else wants, and goes first if memory is short."""
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def compile_variant(variant: Variant) -> Binary:
    """Raises RuntimeError with the compiler's message."""
    triton = _triton()
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler import ASTSource  # noqa: PLC0415
    from triton.errors import TritonError  # noqa: PLC0415

    module, _, function = variant.kernel.partition(".")
    kernel = getattr(
        importlib.import_module(f"warmgraph_engine.backends.cuda.kernels.{module}"), function
    )
    names = kernel.arg_names
    constants = dict(variant.constants)
    if "PDL" in names:
        constants["PDL"] = 1
    place = {name: (index,) for index, name in enumerate(names)}
    source = ASTSource(
        kernel,
        {name: "constexpr" if name in constants else variant.types[name] for name in names},
        constexprs={place[name]: value for name, value in constants.items()},
        attrs={place[name]: [["tt.divisibility", _DIVISOR]] for name in variant.aligned},
    )
    try:
        compiled = triton.compile(
            source,
            target=GPUTarget("cuda", variant.capability, 32),
            options={"num_warps": variant.warps, "launch_pdl": True},
        )
    except TritonError as error:
        raise RuntimeError(f"{variant.kernel}: {error}") from error
    if compiled.metadata.global_scratch_size or compiled.metadata.profile_scratch_size:
        raise RuntimeError(f"{variant.kernel} wants scratch memory, which the arena has not")
    code: bytes = compiled.asm["cubin"]
    return Binary(
        Kernel(
            variant=variant.digest(),
            binary=hashlib.sha256(code).hexdigest(),
            name=compiled.metadata.name,
            shared_bytes=compiled.metadata.shared,
            threads=32 * compiled.metadata.num_warps,
            parameters=tuple(name for name in names if name not in constants),
        ),
        code,
    )


def _triton() -> Any:
    """Triton, with a folder for its files that exists: a pod has no home to write to."""
    import triton  # noqa: PLC0415 (takes a second; a complete cache needs no compiler)

    # They would be two thirds of what is stored and loaded, for a debugger that no pod has.
    triton.knobs.compilation.disable_line_info = True
    if "TRITON_CACHE_DIR" not in os.environ and not os.access(Path.home(), os.W_OK):
        triton.knobs.cache.dir = str(Path(tempfile.gettempdir()) / f"triton-{os.getuid()}")
    return triton
