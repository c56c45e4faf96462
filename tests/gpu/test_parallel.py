"""Two ranks on two GPUs: the sum over them, the engine's answers, its second start, a bucket that
one has not got, a lost rank."""

from __future__ import annotations

import contextlib
import os
import signal
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from cuda.bindings import driver as cuda

from tests.engine.parallel.fallback import FAILURES, fallback_logits, let_rank_fail
from tests.engine.parallel.test_process import TWO, other_rank, runs
from tests.engine.process.engines import PATIENCE_SECONDS, Start
from tests.engine.store.engines import Engine
from tests.gpu.reductions import check_reductions
from tests.gpu.test_process import libraries
from warmgraph_api.resource import Device


def gpus() -> int:
    """That this process may see; 0 without a driver."""
    try:
        status, *_ = cuda.cuInit(0)
        if status != cuda.CUresult.CUDA_SUCCESS:
            return 0
        return int(cuda.cuDeviceGetCount()[1])
    except RuntimeError:  # the bindings found no driver
        return 0


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(gpus() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize("hidden", [576, 4096])
def test_a_thousand_sums_are_right_and_the_same_bits_on_both(tmp_path: Path, hidden: int) -> None:
    check_reductions(tmp_path, hidden=hidden, rounds=1000)


def test_two_ranks_answer_as_one_captured_restored_and_eagerly(
    start: Start, tmp_path: Path
) -> None:
    one = start()
    one.serve()
    expected = one.complete("hello there", 40)
    assert one.stop() == 0

    cache = f"--cache-directory={tmp_path / 'cache'}"
    first = start(TWO, cache)
    first.serve()
    assert first.complete("hello there", 40) == expected
    assert "libtorch" not in libraries(first)
    first.wait_for(lambda: "stored 4 graphs" in first.log)
    assert first.stop() == 0

    second = start(TWO, cache)
    second.serve()
    worker = other_rank(second)
    assert "graph cache: Hit" in second.log
    assert "known answers: 4 by stored answer, 0 in full" in second.log
    assert second.complete("hello there", 40) == expected
    for mapped in (libraries(second), Path(f"/proc/{worker}/maps").read_text()):
        assert "libtorch" not in mapped
        assert "libtriton" not in mapped
    assert second.stop() == 0
    assert not runs(worker)

    eager = start(TWO, "--execution=Eager")
    eager.serve()
    assert eager.complete("hello there", 40) == expected
    assert eager.stop() == 0


@pytest.mark.parametrize("failure", FAILURES)
def test_a_bucket_that_one_rank_cannot_have_is_in_fallback_on_all(
    servable: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """And the steps that it was for get the same bits from the next larger one as eagerly."""
    let_rank_fail(monkeypatch, failure)
    sizes = {"kv_cache_bytes": 1 << 20, "tensor_parallel_size": 2}
    with closing(Engine(servable, None, device=Device.CUDA, **sizes)) as two:
        padded, eager = fallback_logits(two)
    assert np.array_equal(padded, eager)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_rank_is_named_and_the_engine_ends(start: Start, number: signal.Signals) -> None:
    engine = start(TWO, "--rank-timeout-seconds=5")
    engine.serve()
    worker = other_rank(engine)
    os.kill(worker, number)
    if number is signal.SIGSTOP:  # nobody misses it before there is something to do
        with contextlib.suppress(OSError):
            engine.complete("hello there", 40)
    assert engine.process.wait(PATIENCE_SECONDS) == 1
    assert not runs(worker)
    assert "EngineFault: rank 1 " in engine.log
