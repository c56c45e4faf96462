"""Graph images: what can be recorded, and what a player refuses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.checkpoints import SETTINGS, backend, decode, write_checkpoint
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.base import CaptureError, GraphImage, ImageError
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.backends.cpu.recorder import CpuRecorder
from warmgraph_engine.models.steps import Memory, StepInputs
from warmgraph_engine.shapes import bucket_shape, shape_of

SHAPE = bucket_shape(StepKind.DECODE, 2, max_batch_size=8, speculative_tokens=0)
STEP = decode((1, 0, [1]), (2, 0, [2]))


@pytest.fixture
def ours(tmp_path: Path) -> CpuBackend:
    return backend(write_checkpoint(tmp_path / "model"))


@pytest.fixture
def image(ours: CpuBackend) -> GraphImage:
    ours.buffers.fill(STEP, SHAPE)
    return ours.recorder.record(2, SHAPE)


def edited(image: GraphImage, edit: Callable[[Any], None]) -> GraphImage:
    document = json.loads(image.document)
    edit(document)
    return dataclasses.replace(image, document=json.dumps(document).encode())


def test_an_image_plays_in_another_process_with_its_own_weights(
    ours: CpuBackend, image: GraphImage, tmp_path: Path
) -> None:
    """Weights are referred to by name: none is inside the image."""
    other = backend(write_checkpoint(tmp_path / "other", seed=1))
    other.buffers.fill(STEP, shape_of(STEP))
    other.run_eagerly(shape_of(STEP))
    expected = other.logits(2).copy()
    other.buffers.fill(STEP, SHAPE)
    other.player.load(image).replay()
    np.testing.assert_array_equal(other.logits(2), expected)
    assert len(image.document) < 60_000


def test_recording_twice_gives_the_same_bytes(ours: CpuBackend, image: GraphImage) -> None:
    ours.buffers.fill(STEP, SHAPE)
    assert ours.recorder.record(2, SHAPE).document == image.document


def _reads_a_value(memory: Memory, inputs: StepInputs) -> None:
    if inputs.context_lengths.sum().item() > 0:
        inputs.logits.copy_(memory.tensor("weights.embedding")[:1])


def _draws_a_number(memory: Memory, inputs: StepInputs) -> None:
    inputs.logits.copy_(torch.rand_like(memory.tensor("weights.embedding")[:1]))


def _uses_a_tensor_of_its_own(memory: Memory, inputs: StepInputs) -> None:
    inputs.logits.mul_(torch.ones(1))


def _fails(memory: Memory, inputs: StepInputs) -> None:
    torch.mm(memory.tensor("weights.embedding"), memory.tensor("weights.embedding"))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (_reads_a_value, "cannot be part of a graph"),
        (_draws_a_number, "cannot be part of a graph"),
        (_uses_a_tensor_of_its_own, "cannot be part of a graph|outside the arena"),
        (_fails, "failed while it was captured"),
    ],
)
def test_a_step_that_a_replay_could_not_repeat_is_not_captured(
    ours: CpuBackend, step: Callable[[Memory, StepInputs], None], message: str
) -> None:
    with pytest.raises(CaptureError, match=message):
        CpuRecorder(ours.arena, step).record(2, SHAPE)
    ours.buffers.fill(STEP, SHAPE)
    ours.player.load(ours.recorder.record(2, SHAPE)).replay()


def test_an_operation_outside_the_list_is_refused(ours: CpuBackend, image: GraphImage) -> None:
    def edit(document: Any) -> None:
        document["nodes"][-1]["op"] = "aten.from_file.default"

    with pytest.raises(ImageError, match="unusable node"):
        ours.player.load(edited(image, edit))


def _view(region: str) -> list[Any]:
    node = {"op": "aten.t.default", "args": [{"region": region}], "kwargs": {}, "out": [1 << 40]}
    return [node, {"value": 1 << 40}]


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("aten.mul_.Tensor", {"args": [2.0]}),
        ("aten.copy_.default", {"args": [{"region": "weights.norm"}]}),
        ("aten.mm.out", {"args": [], "kwargs": {"out": {"region": "weights.embedding"}}}),
    ],
)
@pytest.mark.parametrize("region", ["weights.embedding", "buffers.slots"])
@pytest.mark.parametrize("through_a_view", [False, True])
def test_a_program_that_changes_the_model_or_the_step_is_refused(
    ours: CpuBackend,
    image: GraphImage,
    operation: str,
    more: dict[str, Any],
    region: str,
    through_a_view: bool,
) -> None:
    """It would answer wrong, be found out, and leave a model that answers wrong for ever."""

    def edit(document: Any) -> None:
        layout = ours.layout[region]
        document["regions"][region] = [layout.dtype, list(layout.shape)]
        target: Any = {"region": region}
        if through_a_view:
            node, target = _view("weights.embedding" if region.startswith("w") else region)
            document["nodes"].append(node)
        node = {"op": operation, "args": [target, *more["args"]], "out": []}
        document["nodes"].append({**node, "kwargs": more.get("kwargs", {})})

    with pytest.raises(ImageError, match=r"writes to (weights|buffers)\."):
        ours.player.load(edited(image, edit))


@pytest.mark.parametrize(
    "node",
    [
        {"op": "aten.silu.default", "args": [{"region": "weights.norm"}, True]},
        {
            "op": "aten.silu.default",
            "args": [{"region": "weights.norm"}],
            "kwargs": {"inplace": True},
        },
        {
            "op": "aten.mul.Tensor",
            "args": [{"region": "weights.norm"}, 2.0],
            "kwargs": {"out": {"region": "weights.norm"}},
        },
    ],
)
def test_what_only_pythons_binding_of_an_operation_takes_is_refused(
    ours: CpuBackend, image: GraphImage, node: dict[str, Any]
) -> None:
    """Each of these would write to its argument, which the operation itself never does."""

    def edit(document: Any) -> None:
        document["nodes"].append({"kwargs": {}, "out": [], **node})

    with pytest.raises(ImageError, match="does not take these arguments"):
        ours.player.load(edited(image, edit))


@pytest.mark.parametrize(
    ("operation", "place", "argument", "message"),
    [
        ("aten.mul.Tensor", 1, 1 << 70, "int too big"),
        ("warmgraph.store_kv.default", 2, True, "has no attribute"),
        ("warmgraph.paged_attention.default", 8, [1], "not supported between"),
    ],
)
def test_an_operation_that_fails_in_a_replay_fails_as_any_other(
    ours: CpuBackend, image: GraphImage, operation: str, place: int, argument: Any, message: str
) -> None:
    """Whatever Python and torch raise: the check expects a RuntimeError."""

    def edit(document: Any) -> None:
        node = next(n for n in document["nodes"] if n["op"] == operation)
        node["args"][place] = argument

    graph = ours.player.load(edited(image, edit))
    ours.buffers.fill(STEP, SHAPE)
    with pytest.raises(RuntimeError, match=message):
        graph.replay()


def test_an_image_for_another_memory_layout_is_refused(image: GraphImage, tmp_path: Path) -> None:
    larger = dataclasses.replace(SETTINGS, kv_cache_bytes=128 << 10)
    other = backend(write_checkpoint(tmp_path / "other"), larger)
    with pytest.raises(ImageError, match=r"was made for kv\.0\.key"):
        other.player.load(image)


def test_an_image_of_another_bucket_is_refused(ours: CpuBackend, image: GraphImage) -> None:
    with pytest.raises(ImageError, match="is of bucket decode 2"):
        ours.player.load(dataclasses.replace(image, size=4))


def test_another_format_is_refused(ours: CpuBackend, image: GraphImage) -> None:
    with pytest.raises(ImageError, match="has format 99"):
        ours.player.load(edited(image, lambda document: document.update(format=99)))


def test_damaged_documents_are_refused_and_never_crash(ours: CpuBackend, image: GraphImage) -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        data = bytearray(image.document)
        for position in random.integers(0, len(data), 3):
            data[position] = random.integers(32, 127)
        try:
            ours.player.load(dataclasses.replace(image, document=bytes(data)))
        except ImageError:
            continue
        # A changed constant can still be a program; checksums are what finds those (store/).
