"""What one of two ranks cannot do, none does; and who does not say is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.checkpoints import decode, prefill, write_servable_checkpoint
from tests.engine.store.engines import Engine
from warmgraph_api.report import BucketState, CacheResult, StepKind
from warmgraph_engine.parallel import processes
from warmgraph_engine.parallel.ranks import RankError
from warmgraph_engine.step import PathReason

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_servable_checkpoint(tmp_path_factory.mktemp("served") / "model")


@contextmanager
def engine(model: Path, cache: Path | None = None, **settings: Any) -> Iterator[Engine]:
    started = Engine(model, cache, tensor_parallel_size=2, **settings)
    try:
        yield started
    finally:
        started._started.close()


@pytest.mark.parametrize("failure", ["capture decode 2", "load decode 2"])
def test_a_bucket_that_one_rank_cannot_have_is_in_fallback_on_all(
    model: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    step = decode((6, 5, [1, 2]), (7, 0, [3]))
    monkeypatch.setenv("FAILS", failure)
    monkeypatch.setattr(processes, "WORKER", "tests.engine.parallel.failing_rank")
    with engine(model) as two:
        bucket = two.reporter._buckets[(StepKind.DECODE, 2)]
        assert bucket.state is BucketState.FALLBACK
        assert "rank 1: " in bucket.reason
        two.executor.execute(prefill([1, 2, 3, 4, 5], [1, 2]))
        result = two.executor.execute(step)
        assert (result.bucket, result.reason) == (4, PathReason.LARGER_BUCKET)
        logits = np.array(result.logits)
    one = Engine(model, None)
    one.executor.execute(prefill([1, 2, 3, 4, 5], [1, 2]))
    assert np.allclose(logits, one.executor.execute(step).logits, atol=1e-4)


def test_graphs_that_one_rank_has_lost_are_captured_by_all(model: Path, tmp_path: Path) -> None:
    with engine(model, tmp_path) as first:
        first.publish()
    entries = {}
    for entry in tmp_path.glob("*/key.json"):
        entries[json.loads(entry.read_text())["tensor_parallel_rank"]] = entry.parent
    assert entries.keys() == {0, 1}
    with engine(model, tmp_path) as second:
        assert {state for state, _, _ in second.order} == {BucketState.RESTORED}
    shutil.rmtree(entries[1])
    with engine(model, tmp_path) as third:
        cache = third.reporter.cache
        assert cache.result is CacheResult.MISS
        assert cache.message.startswith("rank 1 has no stored graphs")
        assert {state for state, _, _ in third.order} == {BucketState.CAPTURED}
        third.publish()
    with engine(model, tmp_path) as fourth:
        assert fourth.reporter.cache.result is CacheResult.HIT


def test_a_rank_that_does_not_answer_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "answer")
    monkeypatch.setattr(processes, "WORKER", "tests.engine.parallel.failing_rank")
    with pytest.raises(RankError) as raised, engine(model, rank_timeout_seconds=2):
        pass
    assert str(raised.value) == ("rank 1 has not answered within 2 s; it was to capture prefill 16")
