"""Recording needs no GPU, and no compiler for what a stored image brings along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec
import pytest

from tests.engine.cuda.models import llama, regions, settings
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.base import CaptureError
from warmgraph_engine.backends.cuda import compiler as compiler_module
from warmgraph_engine.backends.cuda.compiler import Binary, Compiler, Variant
from warmgraph_engine.backends.cuda.document import Kernel, decode
from warmgraph_engine.backends.cuda.launch import Launch
from warmgraph_engine.backends.cuda.layout import geometry
from warmgraph_engine.backends.cuda.program import step_program, usual_shapes
from warmgraph_engine.backends.cuda.recorder import CudaRecorder
from warmgraph_engine.shapes import StepShape

DECODE_2 = StepShape(kind=StepKind.DECODE, tokens=2, sequences=2, logit_rows=2)
DECODE_4 = StepShape(kind=StepKind.DECODE, tokens=4, sequences=4, logit_rows=4)

PREFILL_16 = StepShape(kind=StepKind.PREFILL, tokens=16, sequences=2, logit_rows=2)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels that were compiled, by a compiler that only pretends to."""
    names: list[str] = []

    def compile_(variant: Variant) -> Binary:
        names.append(variant.kernel)
        kernel = Kernel(
            variant=variant.digest(),
            binary=f"binary of {variant.digest()}",
            name=variant.kernel.partition(".")[2],
            shared_bytes=0,
            threads=32 * variant.warps,
            parameters=tuple(variant.types),
        )
        return Binary(kernel, b"code")

    monkeypatch.setattr(compiler_module, "compile_variant", compile_)
    return names


def one_by_one(compiler: Compiler, launches: Iterable[Launch]) -> None:
    """In place of processes, which would not know that compiling is only pretended."""
    for launch in launches:
        compiler.compile(launch)


class Recording:
    def __init__(self, usual: Sequence[StepShape] = ()) -> None:
        config, options = llama(), settings("bfloat16")
        planned = regions(config, options)
        self.compiler = Compiler(90, {name: region.dtype for name, region in planned.items()})
        self.recorder = CudaRecorder(
            self.compiler,
            planned,
            lambda shape: step_program(config, geometry(options), shape),
            usual,
        )


def test_a_document_names_memory_by_region_and_holds_no_address(compiled: list[str]) -> None:
    image = Recording().recorder.record(2, DECODE_2)
    recorded = decode(image.document)
    assert (recorded.kind, recorded.size) == ("decode", 2)
    pointed = {
        value for node in recorded.nodes for kind, value in node.arguments if kind == "region"
    }
    assert pointed == set(recorded.regions)
    addresses = [v for node in recorded.nodes for kind, v in node.arguments if kind == "address"]
    assert set(addresses) == {0}, "the two scratch pointers that no kernel uses"
    assert {kernel.binary for kernel in recorded.kernels} == set(image.binaries)


def test_buckets_share_their_kernels(compiled: list[str]) -> None:
    recording = Recording()
    recording.recorder.record(2, DECODE_2)
    first = len(compiled)
    recording.recorder.record(4, DECODE_4)
    assert len(compiled) == first


def test_what_a_stored_image_brings_is_not_compiled_again(compiled: list[str]) -> None:
    image = Recording().recorder.record(2, DECODE_2)
    compiled.clear()
    later = Recording()
    for kernel in decode(image.document).kernels:
        later.compiler.learn(kernel, image.binaries[kernel.binary])
    assert later.recorder.record(2, DECODE_2) == image
    assert not compiled
    later.recorder.record(16, PREFILL_16)
    assert compiled == ["attention.attention_chunk"]


def test_the_first_kernels_of_a_step_do_not_overlap(compiled: list[str]) -> None:
    """What follows reads the inputs before it waits, so they must be complete by then."""
    recorded = decode(Recording().recorder.record(2, DECODE_2).document)
    assert [node.overlaps for node in recorded.nodes[:3]] == [False, False, True]


def test_a_kernel_that_does_not_compile_fails_only_its_bucket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> Binary:
        raise RuntimeError("no registers left")

    monkeypatch.setattr(compiler_module, "compile_variant", fail)
    with pytest.raises(CaptureError, match="no registers left"):
        Recording().recorder.record(2, DECODE_2)


def test_a_document_survives_being_written_and_read(compiled: list[str]) -> None:
    document = Recording().recorder.record(2, DECODE_2).document
    assert msgspec.json.encode(decode(document)) == document


def test_no_step_compiles_anything_once_the_usual_shapes_are_compiled(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Compiler, "compile_together", one_by_one)
    options = settings(
        "bfloat16", max_batch_size=80, max_batch_tokens=700, max_tokens_per_sequence=4
    )
    recording = Recording(usual_shapes(options))
    recording.recorder.record(2, DECODE_2)
    assert compiled
    compiled.clear()
    for rows in (1, 2, 15, 16, 17, 32, 33, 64, 65, 80, 100, 512, 513, 700):
        sequences = min(rows, 80)
        shapes = [
            StepShape(kind=StepKind.PREFILL, tokens=rows, sequences=s, logit_rows=logits)
            for s in {1, sequences}
            for logits in {0, 1, sequences}
        ]
        if rows <= 80:
            size = {"tokens": rows, "sequences": rows, "logit_rows": rows}
            shapes.append(StepShape(kind=StepKind.DECODE, **size))
        if rows <= 80:
            size = {"tokens": 4 * rows, "sequences": rows, "logit_rows": 4 * rows}
            shapes.append(StepShape(kind=StepKind.VERIFY, **size))
        for shape in shapes:
            recording.recorder.record(shape.tokens, shape)
            assert not compiled, shape


def test_what_a_restored_engine_lacks_is_compiled_beside_its_steps(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Compiler, "compile_beside", one_by_one)
    image = Recording().recorder.record(2, DECODE_2)
    restored = Recording([DECODE_2, PREFILL_16])
    for kernel in decode(image.document).kernels:
        restored.compiler.learn(kernel, image.binaries[kernel.binary])
    compiled.clear()
    restored.recorder.prepare()
    assert compiled == ["attention.attention_chunk"], "and nothing that a graph has brought"
    restored.recorder.record(16, PREFILL_16)
    assert compiled == ["attention.attention_chunk"]


def test_a_compiler_that_is_lost_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiler_module, "BESIDE_SECONDS", 0.001)
    with pytest.raises(RuntimeError, match=r"within 0\.001 s"):
        Recording([DECODE_2]).recorder.prepare()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [Compiler.compile_together, Compiler.compile_beside])
def test_processes_compile_what_one_would_and_leave_failures_to_be_told(
    how: Callable[[Compiler, Iterable[Launch]], None],
) -> None:
    """For real: two kernels, in two processes or in one."""
    recording = Recording()
    launches = [
        launch
        for launch in recording.recorder._program(DECODE_2)
        if launch.kernel in {"heads.split_heads", "norm.add_norm", "inputs.copy_inputs"}
    ][:2]
    broken = replace(launches[0], constants={**launches[0].constants, "BLOCK": 3})
    how(recording.compiler, [*launches, broken])
    assert recording.compiler.knows(launches)
    assert not recording.compiler.knows([broken])
    binary = recording.compiler.compile(launches[0])
    assert binary.code.startswith(b"\x7fELF")
    alone = Recording().compiler.compile(launches[0])
    assert alone == binary
    with pytest.raises(RuntimeError, match="copy_inputs"):
        recording.compiler.compile(broken)
