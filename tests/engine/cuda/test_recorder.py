"""Recording needs no GPU, and no compiler for what a stored image brings along."""

from __future__ import annotations

import msgspec
import pytest

from tests.engine.cuda.models import llama, settings
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.base import CaptureError
from warmgraph_engine.backends.cuda import compiler as compiler_module
from warmgraph_engine.backends.cuda.compiler import Binary, Compiler
from warmgraph_engine.backends.cuda.document import Kernel, decode
from warmgraph_engine.backends.cuda.launch import Launch
from warmgraph_engine.backends.cuda.layout import geometry, plan_device, plan_host
from warmgraph_engine.backends.cuda.program import step_program
from warmgraph_engine.backends.cuda.recorder import CudaRecorder
from warmgraph_engine.models.weights import weight_specs
from warmgraph_engine.shapes import StepShape

DECODE_2 = StepShape(kind=StepKind.DECODE, tokens=2, sequences=2, logit_rows=2)
DECODE_4 = StepShape(kind=StepKind.DECODE, tokens=4, sequences=4, logit_rows=4)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels that were compiled, by a compiler that only pretends to."""
    names: list[str] = []

    def compile_(
        self: Compiler, launch: Launch, types: dict[str, str], aligned: list[str], variant: str
    ) -> Binary:
        names.append(launch.kernel)
        kernel = Kernel(
            variant=variant,
            binary=f"binary of {variant}",
            name=launch.kernel.partition(".")[2],
            shared_bytes=0,
            threads=32 * launch.warps,
            parameters=tuple(launch.arguments),
        )
        return Binary(kernel, b"code")

    monkeypatch.setattr(compiler_module.Compiler, "_compile", compile_)
    return names


class Recording:
    def __init__(self) -> None:
        config, options = llama(), settings("bfloat16")
        layouts = (
            plan_device(config, options, weight_specs(config, ["lm_head.weight"])),
            plan_host(config, options),
        )
        regions = {region.name: region for layout in layouts for region in layout}
        self.compiler = Compiler(90, {name: region.dtype for name, region in regions.items()})
        self.recorder = CudaRecorder(
            self.compiler, regions, lambda shape: step_program(config, geometry(options), shape)
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
    later.recorder.record(
        16, StepShape(kind=StepKind.PREFILL, tokens=16, sequences=2, logit_rows=2)
    )
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

    monkeypatch.setattr(compiler_module.Compiler, "_compile", fail)
    with pytest.raises(CaptureError, match="no registers left"):
        Recording().recorder.record(2, DECODE_2)


def test_a_document_survives_being_written_and_read(compiled: list[str]) -> None:
    document = Recording().recorder.record(2, DECODE_2).document
    assert msgspec.json.encode(decode(document)) == document
