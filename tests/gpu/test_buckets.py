"""Every bucket that a preset can declare, at every border of its fill, over poison."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.gpu_serving import FLAGS
from tests.engine.cuda.models import llama_values
from tests.engine.cuda.probe import Probe
from tests.engine.cuda.sweep import check_bucket, greedy
from tests.gpu.conftest import Served
from tests.gpu.test_backend import MODELS
from warmgraph_api.report import StepKind
from warmgraph_api.resource import BucketPreset
from warmgraph_engine.buckets import preset
from warmgraph_engine.config import parse
from warmgraph_engine.shapes import BucketId

pytestmark = pytest.mark.gpu

DRAFTS = 3
ROOM = 300
"""Positions of a sequence: more than a split of attention has."""

LONGEST_CHUNK = 1024
"""Tokens of a prefill step: twice those of the benchmark's longest."""

GREEDY_TOKENS = 64
PROMPTS = [250, 1, 17, 16, 15, 33, 64, 5]
"""Lengths, taken in turns: around the borders of blocks, and one that reaches the second split."""


def declared(kind: StepKind) -> list[BucketId]:
    """Those of the largest preset, and two sizes that no tile of a kernel fits."""
    full = preset(BucketPreset.FULL, max_batch_size=32, max_batch_tokens=512, verify=True)
    sizes = {bucket.size for bucket in full if bucket.kind is kind}
    odd = {StepKind.DECODE: {3, 17}, StepKind.PREFILL: {1, 65}, StepKind.VERIFY: {5}}
    return [(kind, size) for size in sorted(sizes | odd[kind])]


@pytest.mark.parametrize("kind", StepKind)
@pytest.mark.parametrize("name", ["llama", "smollm2", "gpt2", "llama, fp8", "gpt2, fp8"])
def test_a_graph_gives_the_bits_of_eager_execution_at_every_fill(
    serve: Callable[..., Served], name: str, kind: StepKind
) -> None:
    probe = Probe(serve(*MODELS[name]).backend)
    for bucket in declared(kind):
        check_bucket(probe, *bucket, drafts=DRAFTS, room=ROOM)


@pytest.mark.parametrize("kind", [StepKind.DECODE, StepKind.PREFILL])
def test_every_bucket_of_the_benchmark_and_a_longer_one_gives_the_bits_of_eager_execution(
    serve: Callable[..., Served], kind: StepKind
) -> None:
    """Figures are those of graphs of up to 64 sequences (benchmarks/gpu_serving.py)."""
    config = parse(["--model=any", *FLAGS])
    buckets = [(bucket.kind, bucket.size) for bucket in config.buckets]
    model = serve(
        llama_values(num_hidden_layers=1),
        kv_cache_bytes=6 << 20,
        max_batch_size=config.max_batch_size,
        max_batch_tokens=LONGEST_CHUNK,
    )
    probe = Probe(model.backend)
    for of, size in (*buckets, (StepKind.PREFILL, LONGEST_CHUNK)):
        if of is kind:
            check_bucket(probe, kind, size, drafts=0, room=ROOM)


@pytest.mark.parametrize("name", ["llama", "gpt2", "float32"])
def test_64_greedy_tokens_are_those_of_eager_execution(
    serve: Callable[..., Served], name: str
) -> None:
    """From every decode bucket, exact and padded."""
    probe = Probe(serve(*MODELS[name]).backend)
    for kind, size in declared(StepKind.DECODE):
        graph = probe.capture(kind, size)
        for used in sorted({size, max(1, size - 1)}):
            prompts = [PROMPTS[i % len(PROMPTS)] for i in range(used)]
            replayed = greedy(probe, prompts, GREEDY_TOKENS, graph)
            assert replayed == greedy(probe, prompts, GREEDY_TOKENS, None), (size, used)
