"""Buckets of a small model, swept on an interpreted GPU; tests/gpu/test_buckets.py does it on a
real one.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.cuda import tiny
from tests.engine.cuda.gpu import InterpretedGpu
from tests.engine.cuda.probe import Probe
from tests.engine.cuda.sweep import check_bucket, greedy
from warmgraph_api.report import StepKind

pytestmark = pytest.mark.timeout(600)

DRAFTS = 2
ROOM = 12
"""Three blocks of keys and values: contexts of up to that are soon interpreted."""

BUCKETS = [
    (StepKind.DECODE, 1),
    (StepKind.DECODE, 4),
    (StepKind.PREFILL, 16),
    (StepKind.VERIFY, 4),
]


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Probe:
    gpu = InterpretedGpu()
    gpu.install(monkeypatch)
    sizes = {"max_tokens_per_sequence": 1 + DRAFTS, "kv_cache_bytes": 64 << 10}
    return Probe(tiny.backend_on(gpu, tiny.write(tmp_path), **sizes))


@pytest.mark.parametrize(("kind", "size"), BUCKETS)
def test_a_graph_gives_the_bits_of_eager_execution_at_every_fill(
    probe: Probe, kind: StepKind, size: int
) -> None:
    check_bucket(probe, kind, size, drafts=DRAFTS, room=ROOM)


def test_greedy_tokens_are_those_of_eager_execution(probe: Probe) -> None:
    graph = probe.capture(StepKind.DECODE, 4)
    prompts = [3, 1, 5]
    assert greedy(probe, prompts, 3, graph) == greedy(probe, prompts, 3, None)
