"""The whole CUDA backend on an interpreted GPU: what requests get, and what waits for what.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from benchmarks.graph_modes import Mode, driver_calls
from tests.engine.checkpoints import prefill
from tests.engine.cuda import tiny
from tests.engine.cuda.gpu import InterpretedGpu
from tests.engine.harness import Engine, Result
from tests.engine.requests import one_of_each_kind
from warmgraph_api.report import Bucket, BucketMode, BucketState, StepKind
from warmgraph_api.resource import Execution, Quantization
from warmgraph_engine.backends.base import Backend, GraphImage, ImageError
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.backends.cuda import document, quick
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.backends.cuda.layout import HOST_SETS
from warmgraph_engine.backends.cuda.pieces import PiecewisePlayer
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graph_metrics import GraphMetrics
from warmgraph_engine.graph_mode import GraphMode
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.shapes import shape_of
from warmgraph_engine.step import PENDING_TOKEN, Step, StepDraw, StepError, StepRow
from warmgraph_engine.step import Path as StepPath
from warmgraph_engine.warmup.check import KnownAnswers, check_order
from warmgraph_engine.warmup.tasks import capture_and_check

BUCKETS = [(StepKind.DECODE, 2), (StepKind.DECODE, 4), (StepKind.PREFILL, 16)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny.write(tmp_path_factory.mktemp("model"))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> InterpretedGpu:
    gpu = InterpretedGpu()
    gpu.install(monkeypatch)
    return gpu


@pytest.fixture
def backend(gpu: InterpretedGpu, checkpoint: Checkpoint) -> CudaBackend:
    return tiny.backend_on(gpu, checkpoint)


def test_a_file_that_ends_while_it_is_read_is_named(
    gpu: InterpretedGpu, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    for file in checkpoint.folder.iterdir():
        shutil.copy(file, tmp_path)
    opened = Checkpoint(tmp_path)
    weights = tmp_path / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 64)
    backend = CudaBackend(opened, tiny.options())
    with pytest.raises(ModelError, match=r"model\.safetensors: ends before its last tensor"):
        backend.finish_loading()


def table(backend: Backend, *, capture: bool = True) -> GraphTable:
    graphs = GraphTable(
        backend,
        [
            Bucket(kind=kind, size=size, mode=BucketMode.EAGER, state=BucketState.PENDING)
            for kind, size in BUCKETS
        ],
    )
    for bucket in graphs.ids() if capture else ():
        assert graphs.capture(bucket), graphs[bucket].bucket.reason
    return graphs


def served(backend: Backend, graphs: GraphTable, counts: StepCounts) -> list[Result]:
    executor = GraphExecutor(backend, graphs, counts)
    engine = Engine(executor=executor, sampler=backend.sampler, far_rows=0)
    engine.loop._deliver = engine.collect
    sequences, most = one_of_each_kind(), 0
    arriving = list(sequences)
    while any(engine.result(one).finish is None for one in sequences):
        engine.loop.submit(arriving[:2])
        del arriving[:2]
        engine.loop.wake()
        engine.loop._turn()
        most = max(most, len(engine.loop._unread))
    assert most == (2 if isinstance(backend, CudaBackend) else 0), "steps that were ahead"
    assert not engine.kept_by_sampler
    return [engine.result(one) for one in sequences]


def test_requests_get_from_the_gpu_what_they_get_from_the_cpu(
    backend: CudaBackend, checkpoint: Checkpoint
) -> None:
    cpu = CpuBackend(checkpoint, tiny.options())
    expected = served(cpu, table(cpu, capture=False), StepCounts())
    for capture in (True, False):
        counts = StepCounts()
        results = served(backend, table(backend, capture=capture), counts)
        for result, wanted in zip(results, expected, strict=True):
            assert result.ids == wanted.ids
            assert result.finish == wanted.finish
            scores = [t.logprob.logprob for t in wanted.tokens if t.logprob]
            assert [t.logprob.logprob for t in result.tokens if t.logprob] == pytest.approx(
                scores, rel=1e-4
            )
            prompt = [scored.logprob for scored in wanted.prompt_logprobs]
            got = [scored.logprob for scored in result.prompt_logprobs]
            assert got == pytest.approx(prompt, rel=1e-4)
        replayed = {path for _, _, path, _ in counts.steps if path is not StepPath.EAGER}
        assert bool(replayed) == capture


def test_launches_are_counted_and_those_of_a_graph_are_not(backend: CudaBackend) -> None:
    graphs = table(backend)
    assert backend.launches == 0, "recorded and loaded, and not launched"
    executor = GraphExecutor(backend, graphs, StepCounts())
    executor.execute(decode(8, 0))
    replayed = backend.launches
    assert replayed == 1, "the kernel that reads the host's buffers"
    executor.set_execution(Execution.EAGER)
    executor.execute(decode(8, 1))
    assert backend.launches > 5 * replayed


def test_serving_asks_the_driver_for_no_memory(backend: CudaBackend) -> None:
    graphs, before = table(backend), backend.allocations
    assert before > 0
    for _ in range(2):
        served(backend, graphs, StepCounts())  # also more rows of logits than sequences
    assert backend.allocations == before


def decode(token: int, position: int, draw: StepDraw | None = None, slot: int = 0) -> Step:
    row = StepRow(
        token_ids=[token],
        slot=slot,
        start_position=position,
        block_table=BlockTable([3, 5]),
        logit_rows=1,
        draw=draw,
    )
    return Step(kind=StepKind.DECODE, rows=[row])


@pytest.mark.parametrize("capture", [True, False], ids=["graph", "eagerly"])
def test_a_step_waits_for_nothing_and_the_next_one_goes_on_from_its_token(
    gpu: InterpretedGpu, backend: CudaBackend, capture: bool
) -> None:
    executor = GraphExecutor(backend, table(backend, capture=capture), StepCounts())
    results, waiting = [], [gpu.waiting()]
    for position in range(2):
        token = 8 if position == 0 else PENDING_TOKEN
        results.append(executor.execute(decode(token, position, StepDraw(), slot=2)))
        waiting.append(gpu.waiting())
    assert waiting[0] == 0
    assert waiting[1] > 0
    assert waiting[2] == 2 * waiting[1], "neither step has begun"
    first = results[0].logits.drawn()[2]
    assert gpu.waiting() == waiting[1], "only the first step was waited for"
    second = results[1].logits.drawn()[2]
    alone = backend_tokens(executor, [8, first])
    assert [first, second] == alone


@pytest.mark.parametrize("capture", [True, False], ids=["graph", "eagerly"])
def test_a_step_says_how_long_the_gpu_ran_it_and_had_nothing_to_run_before_it(
    gpu: InterpretedGpu, backend: CudaBackend, capture: bool
) -> None:
    executor = GraphExecutor(backend, table(backend, capture=capture), StepCounts())
    ahead, times = None, []
    for position, pause in enumerate((0, 0, 30, 0, 500)):
        if pause:  # the GPU has run all it had, and waits
            gpu.cuStreamSynchronize(backend._device.stream)
            gpu.milliseconds += pause
        step = executor.execute(decode(8, position, StepDraw()))
        if ahead is not None:
            times.append(ahead.timing.times())
        ahead = step
    assert [round(1e3 * time.idle_seconds) for time in times] == [0, 0, 30, 0]
    recorded = document.decode(backend.recorder.record(1, shape_of(decode(8, 0))).document)
    assert [round(1e3 * time.busy_seconds) for time in times] == [len(recorded.nodes)] * 4
    waiting = gpu.waiting()
    ahead.timing.times()
    assert waiting and not gpu.waiting(), "it waits for its step alone"


def backend_tokens(executor: GraphExecutor, tokens: list[int]) -> list[int]:
    """The likeliest token after each, one step at a time, from logits on the host."""
    found = []
    for position, token in enumerate(tokens):
        logits = executor.execute(decode(token, position)).logits
        found.append(int(logits.on_host([0])[0].argmax()))
    return found


def test_tokens_outlive_the_buffers_that_they_came_in(
    gpu: InterpretedGpu, backend: CudaBackend
) -> None:
    """Between a step and the reading of its tokens, graphs may be captured and checked."""
    graphs = table(backend, capture=False)
    executor = GraphExecutor(backend, graphs, StepCounts())
    kept = executor.execute(decode(8, 0, StepDraw(), slot=1)).logits
    answers = KnownAnswers(backend, graphs, StepCounts())
    capture_and_check(graphs, answers, (StepKind.DECODE, 2))
    assert graphs[StepKind.DECODE, 2].bucket.state is BucketState.CAPTURED
    for position in range(1, 1 + HOST_SETS):
        executor.execute(decode(8 + position, position, StepDraw(), slot=1))
    token = kept.drawn()[1]
    assert [token] == backend_tokens(executor, [8])


@pytest.mark.parametrize("stored", ["bfloat16", "float32"])
def test_quantized_graphs_give_the_bits_of_eager_execution_and_the_logits_of_the_cpu(
    gpu: InterpretedGpu, tmp_path: Path, stored: str
) -> None:
    """From a checkpoint of either type; exact and padded."""
    checkpoint, options = tiny.write(tmp_path, dtype=stored), {"quantization": Quantization.FP8}
    backend = tiny.backend_on(gpu, checkpoint, **options)
    cpu = CpuBackend(checkpoint, tiny.options(**options))
    graphs = table(backend)
    paths = set()
    for rows in (2, 3):
        step = decodes(rows)
        replayed = GraphExecutor(backend, graphs, StepCounts()).execute(step)
        paths.add(replayed.path)
        logits = replayed.logits.on_host(range(rows)).copy()
        eager = GraphExecutor(backend, table(backend, capture=False), StepCounts()).execute(step)
        assert np.array_equal(eager.logits.on_host(range(rows)), logits)
        wanted = GraphExecutor(cpu, table(cpu, capture=False), StepCounts()).execute(step)
        np.testing.assert_allclose(logits, wanted.logits, rtol=1e-4, atol=1e-5)
    assert paths == {StepPath.EXACT, StepPath.PADDED}


def test_every_graph_passes_the_check_and_a_broken_one_does_not(
    backend: CudaBackend,
) -> None:
    graphs = table(backend)
    answers = KnownAnswers(backend, graphs, StepCounts())
    problems = [answers.check(bucket).problem for bucket in check_order(graphs.ids())]
    assert problems == [""] * len(BUCKETS)
    graphs[StepKind.DECODE, 2].graph._executable = ()  # runs nothing
    assert answers.check((StepKind.DECODE, 2)).problem == "its logits are not numbers"


def test_metrics_tell_the_drivers_part_of_each_graph(backend: CudaBackend) -> None:
    graphs = table(backend)
    exported = {
        (metric.name, sample.labels["kind"], int(sample.labels["bucket"])): sample.value
        for metric in GraphMetrics(StepCounts(), graphs, lambda: 0).collect()
        for sample in metric.samples
        if "bucket" in sample.labels
    }
    for part in ("instantiate", "upload"):
        seconds = [exported[f"warmgraph_graph_{part}_seconds", *bucket] for bucket in graphs.ids()]
        assert min(seconds) > 0
        whole = [exported["warmgraph_graph_capture_seconds", *bucket] for bucket in graphs.ids()]
        assert all(one < all_ for one, all_ in zip(seconds, whole, strict=True))


def test_a_graph_that_draws_wrongly_does_not_pass_though_its_logits_are_right(
    backend: CudaBackend,
) -> None:
    graphs = table(backend)
    answers = KnownAnswers(backend, graphs, StepCounts())
    for _ in range(HOST_SETS):  # each set has the right tokens from before
        assert not answers.check((StepKind.DECODE, 2)).problem
    graph = graphs[StepKind.DECODE, 2].graph
    graph._executable = graph._executable[:-1]  # without its last kernel
    problem = answers.check((StepKind.DECODE, 2)).problem
    assert problem == "it draws another token than the likeliest"


def test_a_stored_graph_needs_no_compiler_and_draws_the_same_tokens(
    gpu: InterpretedGpu, checkpoint: Checkpoint
) -> None:
    first = tiny.backend_on(gpu, checkpoint)
    graphs = table(first)
    images = [entry.image for entry in graphs.entries() if entry.image is not None]
    expected = drawn(GraphExecutor(first, graphs, StepCounts()))
    gpu.compiled.clear()
    second = tiny.backend_on(gpu, checkpoint)
    restored = table(second, capture=False)
    for image in images:
        restored.load(image)
    assert drawn(GraphExecutor(second, restored, StepCounts())) == expected
    assert gpu.compiled == []


def drawn(executor: GraphExecutor) -> list[int]:
    """Tokens that steps draw, one sampled and one likeliest at a time."""
    tokens = []
    for position in range(4):
        draw = StepDraw(scale=0.5, top_p=0.9, number=0.3) if position % 2 else StepDraw()
        tokens.append(executor.execute(decode(7, position, draw)).logits.drawn()[0])
    return tokens


def test_a_graph_in_pieces_draws_the_same_tokens_and_launches_attention_itself(
    gpu: InterpretedGpu, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny.backend_on(gpu, checkpoint)
    expected = drawn(GraphExecutor(whole, table(whole), StepCounts()))
    pieces = tiny.backend_on(gpu, checkpoint, graph_mode=GraphMode.PIECEWISE)
    executor = GraphExecutor(pieces, table(pieces), StepCounts())
    launched = []

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def launch(*arguments: Any) -> Any:
            launched.append(getattr(arguments[1], "kernel", "graph"))
            return call(*arguments)

        return launch

    for module, name in (
        (quick, "cuLaunchKernelEx"),
        (driver, "cuLaunchKernelEx"),
        (quick, "cuGraphLaunch"),
    ):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    assert drawn(executor) == expected
    one_layer = ["inputs.copy_inputs", "graph", "attention.attention_decode", "graph"]
    assert launched == one_layer * len(expected)


def test_the_benchmark_of_graph_modes_counts_every_call_that_brings_work_to_the_gpu(
    backend: CudaBackend,
) -> None:
    step = decode(7, 0, StepDraw())
    shape = shape_of(step)
    image = backend.recorder.record(shape.tokens, shape)
    pieces = PiecewisePlayer(backend._launcher)
    runs = {
        "full": backend.player.load(image).replay,
        "piecewise": pieces.load(image).replay,
        "eager": partial(backend.run_eagerly, shape),
    }
    counted = {name: Mode(backend, step, run).launches() for name, run in runs.items()}
    launches = len(document.decode(image.document).nodes)
    assert counted == {"full": 2, "piecewise": 4, "eager": launches}
    with driver_calls("cuGraphInstantiate", "cuGraphUpload") as calls:
        pieces.load(image)
    made = {name: len(seconds) for name, seconds in calls.items()}
    assert made == {"cuGraphInstantiate": 2, "cuGraphUpload": 2}, "before attention, and behind it"


def test_an_image_that_reads_the_host_in_the_middle_of_a_step_is_refused(
    backend: CudaBackend,
) -> None:
    wrong = changed(backend, b'["region","work.query"]', b'["region","host.positions"]')
    with pytest.raises(ImageError, match="reads the host's buffers"):
        backend.player.load(wrong)


def changed(backend: CudaBackend, old: bytes, new: bytes) -> GraphImage:
    """A decode bucket's image with another text in its document, wherever it stood."""
    image = backend.recorder.record(1, shape_of(decode(1, 0)))
    assert old in image.document
    return replace(image, document=image.document.replace(old, new))


@pytest.mark.parametrize("graph_mode", list(GraphMode))
def test_an_image_with_an_address_or_a_region_that_it_does_not_list_is_refused(
    gpu: InterpretedGpu, checkpoint: Checkpoint, graph_mode: GraphMode
) -> None:
    """Though both are of this very arena."""
    backend = tiny.backend_on(gpu, checkpoint, graph_mode=graph_mode)
    address = backend._addresses["work.query"]
    wrong = changed(backend, b'["region","work.query"]', b'["address",%d]' % address)
    with pytest.raises(ImageError, match=f"unusable node: it holds the address {address}"):
        backend.player.load(wrong)
    listed = b'"work.query":["float32",[16,32]],'
    with pytest.raises(ImageError, match=r"unusable node: it does not list the region work\.query"):
        backend.player.load(changed(backend, listed, b""))


@pytest.mark.parametrize("call", ["cuGraphInstantiate", "cuGraphUpload"])
def test_a_bucket_that_the_gpu_has_no_memory_for_is_in_fallback_alone(
    gpu: InterpretedGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The third one. Its steps run eagerly, those of the others in their graphs."""
    graphs, answer, calls = table(backend, capture=False), getattr(gpu, call), []

    def refuse_third(*arguments: Any) -> tuple[Any, ...]:
        calls.append(arguments)
        if len(calls) == 3:
            return driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        return answer(*arguments)

    monkeypatch.setattr(driver, call, refuse_third)
    *others, third = graphs.ids()
    assert [graphs.capture(bucket) for bucket in graphs.ids()] == [True, True, False]
    assert {graphs[bucket].bucket.state for bucket in others} == {BucketState.CAPTURED}
    assert graphs[third].bucket.state is BucketState.FALLBACK
    reason = graphs[third].bucket.reason
    assert reason.startswith("capture failed: was refused by the driver: OUT_OF_MEMORY"), reason
    assert gpu.executables == len(others)
    executor = GraphExecutor(backend, graphs, StepCounts())
    eager = GraphExecutor(backend, table(backend, capture=False), StepCounts())
    for step in (prefill(list(range(16)), [1, 2, 3, 4]), *map(decodes, (2, 4))):
        got = executor.execute(step)
        assert got.path is (StepPath.EAGER if step.kind is third[0] else StepPath.EXACT)
        rows = range(shape_of(step).logit_rows)
        logits = got.logits.on_host(rows).copy()
        assert np.array_equal(eager.execute(step).logits.on_host(rows), logits)


def decodes(rows: int) -> Step:
    """A step of several sequences, each in a block of its own."""
    step = Step(kind=StepKind.DECODE, rows=[decode(7 + n, 0).rows[0] for n in range(rows)])
    for number, row in enumerate(step.rows):
        row.block_table[:] = BlockTable([number + 1])
    return step


def test_no_garbage_is_collected_while_launches_are_captured(
    gpu: InterpretedGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph in it would call the driver in the middle of the capture."""
    image = backend.recorder.record(2, shape_of(decodes(2)))
    launch, collected = driver.cuLaunchKernelEx, []

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            collected.append(gpu.captures)

    def launch_and_litter(*arguments: Any) -> tuple[Any]:
        Garbage()
        [[] for _ in range(10 * gc.get_threshold()[0])]  # more than a collection waits for
        return launch(*arguments)

    monkeypatch.setattr(driver, "cuLaunchKernelEx", launch_and_litter)
    backend.player.load(image)
    assert gc.isenabled()
    gc.collect()
    assert collected
    assert not any(collected)


def test_what_goes_wrong_on_the_gpu_is_told_to_whoever_reads_the_tokens(
    backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = GraphExecutor(backend, table(backend, capture=False), StepCounts())
    logits = executor.execute(decode(8, 0, StepDraw())).logits
    failed = (driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,)
    monkeypatch.setattr(driver, "cuEventSynchronize", lambda _: failed)
    monkeypatch.setattr(driver, "cuStreamSynchronize", lambda _: failed)
    monkeypatch.setattr(driver, "cuGetErrorString", lambda _: (None, b"out of bounds"))
    with pytest.raises(StepError, match="ILLEGAL_ADDRESS: out of bounds"):
        logits.drawn()
    with pytest.raises(StepError, match="out of bounds"):
        logits.on_host([0])
