"""A bucket that one of two ranks cannot have, on whatever device."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.checkpoints import decode, prefill
from tests.engine.store.engines import Engine, logits_of
from warmgraph_api.report import BucketState, StepKind
from warmgraph_api.resource import Execution
from warmgraph_engine.parallel import processes
from warmgraph_engine.step import PathReason

FAILURES = ["capture decode 2", "load decode 2"]


def let_rank_fail(
    monkeypatch: pytest.MonkeyPatch, what: str, worker: str = "tests.engine.parallel.failing_rank"
) -> None:
    """Ranks that are started from now on fail at it, see failing_rank.py."""
    monkeypatch.setenv("FAILS", what)
    monkeypatch.setattr(processes, "WORKER", worker)


def fallback_logits(engine: Engine) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What a step gets whose bucket, decode 2, is in fallback because of rank 1, and what it gets
    eagerly: (sequences, vocabulary) each. It takes the graph of the next larger bucket."""
    bucket = next(b for b in engine.report.buckets if (b.kind, b.size) == (StepKind.DECODE, 2))
    assert bucket.state is BucketState.FALLBACK
    assert "rank 1: " in bucket.reason
    step = decode((6, 5, [1, 2]), (7, 0, [3]))
    engine.executor.execute(prefill([1, 2, 3, 4, 5], [1, 2]))
    result = engine.executor.execute(step)
    assert (result.bucket, result.reason) == (4, PathReason.LARGER_BUCKET)
    padded = logits_of(step, result)
    engine.executor.set_execution(Execution.EAGER)
    eager = logits_of(step, engine.executor.execute(step))
    first, second = (np.frombuffer(logits, np.float32).reshape(2, -1) for logits in (padded, eager))
    return first, second
