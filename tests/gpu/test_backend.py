"""The CUDA backend: right, and the same bits on every path."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda

from tests.engine.cuda.models import Sequences, llama_values
from tests.gpu.conftest import Served
from warmgraph_api.report import StepKind
from warmgraph_api.resource import Quantization
from warmgraph_engine.backends.base import GraphImage, ImageError
from warmgraph_engine.backends.cuda.driver import check
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import StepShape, bucket_shape
from warmgraph_engine.step import Step, StepRow

pytestmark = pytest.mark.gpu

PREFILL, DECODE, VERIFY = StepKind.PREFILL, StepKind.DECODE, StepKind.VERIFY
LLAMA = llama_values()
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 1001,
    "n_embd": 384,
    "n_layer": 2,
    "n_head": 6,
    "n_positions": 2048,
    "layer_norm_epsilon": 1e-5,
    "torch_dtype": "float16",
}
FP8 = Quantization.FP8
MODELS: dict[str, tuple[Any, ...]] = {
    "llama": (LLAMA, "bfloat16", "bfloat16"),
    "llama, head 128": (llama_values(head_dim=128), "bfloat16", "bfloat16"),
    "smollm2": (
        llama_values(hidden_size=576, num_attention_heads=9, num_key_value_heads=3),
        "bfloat16",
        "float32",
    ),
    "long down": (llama_values(intermediate_size=8192, hidden_size=1024), "bfloat16", "bfloat16"),
    "qwen2": (
        llama_values(architectures=["Qwen2ForCausalLM"], tie_word_embeddings=True),
        "float16",
        "bfloat16",
    ),
    "qwen3": (llama_values(architectures=["Qwen3ForCausalLM"]), "bfloat16", "float16"),
    "mistral": (
        llama_values(architectures=["MistralForCausalLM"], sliding_window=300),
        "bfloat16",
        "bfloat16",
    ),
    "gpt2": (GPT2, "float16", "float16"),
    "float32": (LLAMA, "float32", "float32"),
    "llama, fp8": (LLAMA, "bfloat16", "bfloat16", FP8),
    "long down, fp8": (
        llama_values(intermediate_size=8192, hidden_size=1024),
        "bfloat16",
        "float32",
        FP8,
    ),
    "gpt2, fp8": (GPT2, "float16", "float16", FP8),
    "float32, fp8": (LLAMA, "float32", "float32", FP8),
}
WIDE = llama_values(
    hidden_size=4096,
    intermediate_size=4096,
    num_hidden_layers=1,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
)
"""With matrices that keep all multiprocessors at work."""

BOUNDS = {"bfloat16": 3e-2, "float16": 5e-3, "float32": 2e-5}
"""Of the relative error against float32: rounding once for each of a few layers."""


def sequences(model: Served, lengths: list[int], seed: int = 0) -> Sequences:
    return Sequences(
        lengths,
        vocabulary=model.config.vocabulary,
        block_size=model.settings.block_size,
        blocks=model.backend.limits.blocks,
        seed=seed,
    )


def poison(model: Served) -> None:
    """Every KV block but the dummy becomes NaN, and so do the logits of earlier steps."""
    backend = model.backend
    base = backend.player._sets[0]
    block = model.settings.block_size * model.config.kv_heads * model.config.head_dim
    item = 4 if model.settings.dtype == "float32" else 2
    for region in backend.layout:
        if region.group == "kv":
            start = base[region.name] + block * item
            check(cuda.cuMemsetD8(start, 0xFF, region.bytes - block * item))
    logits = backend.layout["buffers.logits"]
    check(cuda.cuMemsetD8(base["buffers.logits"], 0xFF, logits.bytes))


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_right_in_prefill_decode_and_verify(
    serve: Callable[..., Served], name: str
) -> None:
    model = serve(*MODELS[name])
    poison(model)
    bound = BOUNDS[MODELS[name][1]]
    work = sequences(model, [400, 280, 70, 12])
    steps = [
        work.step(PREFILL, [250, 3, 66, 5], logits=1),
        work.step(PREFILL, [100, 252, 0, 1], logits=1),
        work.step(DECODE, [1, 1, 1, 1]),  # the second goes from 255 to 256 positions
        work.step(DECODE, [1, 1, 0, 1]),
        work.step(VERIFY, [5, 5, 2, 3]),
    ]
    for step in steps:
        assert model.error(step, model.eager(step)) < bound


@pytest.mark.parametrize(
    "name", ["llama", "smollm2", "gpt2", "mistral", "llama, fp8", "long down, fp8", "gpt2, fp8"]
)
def test_a_token_gets_the_same_bits_however_it_is_computed(
    serve: Callable[..., Served], name: str
) -> None:
    """Alone or in a batch, in one prefill or in chunks, by decode or by verify."""
    model = serve(*MODELS[name])
    lengths = [300, 257, 100, 33, 17]
    results = []
    chunks = ([300, 0, 0, 0, 0], [0, 257, 0, 0, 0], [0, 0, 100, 33, 17]), ([60] * 5,) * 5, None
    for plan in chunks:
        poison(model)
        work = sequences(model, [n + 6 for n in lengths], seed=3)
        if plan is None:  # token by token, with every neighbour
            while min(d - n for d, n in zip(work.done, lengths, strict=True)) < 0:
                left = [min(1, n - d) for d, n in zip(work.done, lengths, strict=True)]
                model.eager(work.step(DECODE, left))
        else:
            for counts in plan:
                left = [min(c, n - d) for c, d, n in zip(counts, work.done, lengths, strict=True)]
                if any(left):
                    model.eager(work.step(PREFILL, left, logits=0))
        rows = [
            model.eager(work.step(DECODE, [int(i == j) for j in range(5)]))[0] for i in range(5)
        ]
        together = model.eager(work.step(DECODE, [1] * 5))
        verified = model.eager(work.step(VERIFY, [4] * 5))
        results.append(np.concatenate((rows, together, verified)))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    # and what verify gives for a token is what decode gives
    work = sequences(model, [n + 6 for n in lengths], seed=3)
    work.done = [n + 2 for n in lengths]
    decoded = [model.eager(work.step(DECODE, [1] * 5)) for _ in range(4)]
    assert np.array_equal(np.stack(decoded, axis=1).reshape(20, -1), results[0][10:])


@pytest.mark.parametrize("name", ["long down", "long down, fp8"])
def test_a_row_is_summed_the_same_where_one_program_adds_up_all_splits(
    serve: Callable[..., Served], name: str
) -> None:
    """In steps of more than 512 tokens; with fp8 every split is multiplied by the scale first."""
    model = serve(*MODELS[name], max_batch_tokens=1024)
    results = []
    for chunk in (900, 300, 17):
        poison(model)
        work = sequences(model, [901], seed=4)
        while work.done[0] < 900:
            count = min(chunk, 900 - work.done[0])
            model.eager(work.step(PREFILL, [count], logits=0))
        results.append(model.eager(work.step(DECODE, [1])))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


@pytest.mark.parametrize("quantization", Quantization)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_long_prefill_gives_the_same_bits_each_time(
    serve: Callable[..., Served], dtype: str, quantization: Quantization
) -> None:
    model = serve(WIDE, dtype, dtype, quantization)
    results = set()
    for _ in range(60):
        step = sequences(model, [512]).step(PREFILL, [512], logits=1)
        results.add(model.eager(step).tobytes())
    assert len(results) == 1


def test_one_graph_serves_every_length(serve: Callable[..., Served]) -> None:
    model = serve(*MODELS["llama"])
    shape = bucket_shape(DECODE, 4, max_batch_size=32, speculative_tokens=0)
    graph, _ = model.capture(shape)
    poison(model)
    lengths = [1, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024, 1025, 2046, 2047]
    for first in range(0, len(lengths), 4):
        work = sequences(model, [n + 1 for n in lengths[first : first + 4]], seed=first)
        while any(
            left := [
                min(120, n - d) for n, d in zip(lengths[first : first + 4], work.done, strict=True)
            ]
        ):
            model.eager(work.step(PREFILL, left, logits=0))
        step = work.step(DECODE, [1] * 4)
        eager = model.eager(step)
        for _ in range(3):
            assert np.array_equal(eager, model.replay(graph, step, shape))


def test_random_joining_and_leaving_gives_each_sequence_what_it_gets_alone(
    serve: Callable[..., Served],
) -> None:
    """40 sequences of random lengths in batches that change at every step, through padded
    graphs; then each alone, eagerly."""
    model = serve(*MODELS["llama"])
    graphs = {}
    for size in (1, 4, 16, 32):
        shape = bucket_shape(DECODE, size, max_batch_size=32, speculative_tokens=0)
        graphs[size] = (model.capture(shape)[0], shape)
    poison(model)
    chance = random.Random(7)
    lengths = [chance.randrange(3, 60) for _ in range(40)]
    work = sequences(model, lengths, seed=9)
    seen: list[list[np.ndarray]] = [[] for _ in lengths]
    while any(d < n for d, n in zip(work.done, lengths, strict=True)):
        alive = [i for i, n in enumerate(lengths) if work.done[i] < n]
        chosen = sorted(chance.sample(alive, min(len(alive), chance.randrange(1, 33))))
        counts = [int(i in chosen) for i in range(40)]
        graph, shape = next(g for size, g in graphs.items() if size >= len(chosen))
        logits = model.replay(graph, work.step(DECODE, counts), shape)
        for i, row in zip(chosen, logits, strict=True):
            seen[i].append(row)
    poison(model)
    again = sequences(model, lengths, seed=9)
    for i in chance.sample(range(40), 12):
        for j in range(lengths[i]):
            alone = model.eager(again.step(DECODE, [int(k == i) for k in range(40)]))
            assert np.array_equal(alone[0], seen[i][j]), (i, j)


def test_an_image_plays_after_it_was_stored(serve: Callable[..., Served]) -> None:
    model = serve(*MODELS["llama"])
    shape = bucket_shape(DECODE, 2, max_batch_size=32, speculative_tokens=0)
    graph, image = model.capture(shape)
    work = sequences(model, [20, 20])
    model.eager(work.step(PREFILL, [9, 5], logits=0))
    step = work.step(DECODE, [1, 1])
    stored = GraphImage(
        kind=image.kind,
        size=image.size,
        document=bytes(image.document),
        binaries=dict(image.binaries),
    )
    assert image.document == model.capture(shape)[1].document, "recording is deterministic"
    again = model.backend.player.load(stored)
    assert np.array_equal(model.replay(graph, step, shape), model.replay(again, step, shape))


@pytest.mark.parametrize("harm", ["cut short", "other bucket", "no binary", "bad binary", "region"])
def test_a_damaged_image_is_refused(serve: Callable[..., Served], harm: str) -> None:
    model = serve(*MODELS["llama"])
    shape = StepShape(kind=DECODE, tokens=3, sequences=3, logit_rows=3)
    _, image = model.capture(shape)
    size, document, binaries = image.size, image.document, dict(image.binaries)
    theirs = model.backend.player
    player = type(theirs)(model.backend._device, theirs._sets, model.backend._turns)
    if harm == "cut short":
        document = document[:-10]
    elif harm == "other bucket":
        size += 1
    elif harm == "no binary":
        binaries.popitem()
    elif harm == "bad binary":
        binaries = {name: content[:100] for name, content in binaries.items()}
    else:
        document = document.replace(b"work.attended", b"work.attention")
    with pytest.raises(ImageError):
        player.load(GraphImage(kind=image.kind, size=size, document=document, binaries=binaries))


def test_steps_allocate_nothing_once_warm(serve: Callable[..., Served]) -> None:
    model = serve(*MODELS["llama"])
    shape = bucket_shape(DECODE, 1, max_batch_size=32, speculative_tokens=0)
    graph, _ = model.capture(shape)
    step = Step(
        kind=DECODE,
        rows=[StepRow(token_ids=[5], start_position=0, block_table=BlockTable([1]), logit_rows=1)],
    )
    model.replay(graph, step, shape)
    model.eager(step)
    before = model.backend._device.free_bytes()
    for _ in range(100):
        model.replay(graph, step, shape)
        model.eager(step)
    assert model.backend._device.free_bytes() == before
