"""Two ranks on a CPU, rank 0 in this process: what they compute, agree on, and say of a loss."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.checkpoints import decode, prefill, write_servable_checkpoint
from tests.engine.harness import running_engine, sequence
from tests.engine.parallel.fallback import FAILURES, fallback_logits, let_rank_fail
from tests.engine.store.engines import BUCKETS, Engine
from warmgraph_api.report import Bucket, BucketMode, BucketState, CacheResult, CheckState, StepKind
from warmgraph_api.resource import Execution
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.parallel.messages import Answer
from warmgraph_engine.parallel.ranks import Question, RankError, Ranks
from warmgraph_engine.step import StepError

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


def served(engine: Engine, drafts: int = 0) -> list[list[int]]:
    """Tokens of requests that come and go, through the engine's loop; the last one has company at
    first, and is then alone."""
    prompts = [[5, 9, 5], [1] * 20, list(range(30)), list(b"ababababab")]
    sequences = [sequence(prompt, max_tokens=5) for prompt in prompts[:-1]]
    sequences.append(sequence(prompts[-1], max_tokens=40))
    executor, sampler = engine.executor, engine._started.sampler
    with running_engine(executor=executor, sampler=sampler, speculative_tokens=drafts) as requests:
        return [result.ids for result in requests.generate(*sequences)]


def replays(engine: Engine, kind: StepKind) -> float:
    """Of the bucket of one sequence."""
    name = f'warmgraph_graph_replays_total{{bucket="1",kind="{kind}"}}'
    values = dict(line.rsplit(" ", 1) for line in engine.metrics().splitlines())
    return float(values[name])


def test_two_ranks_give_the_tokens_of_one_captured_eagerly_and_with_drafts(model: Path) -> None:
    expected = served(Engine(model, None))
    with engine(model) as captured:
        assert served(captured) == expected
        assert replays(captured, StepKind.DECODE) > 20
        captured.executor.set_execution(Execution.EAGER)
        assert served(captured) == expected
    verify = Bucket(kind=StepKind.VERIFY, size=1, mode=BucketMode.EAGER)
    with engine(model, speculative_tokens=3, buckets=(*BUCKETS, verify)) as drafting:
        assert served(drafting, drafts=3) == expected
        assert replays(drafting, StepKind.VERIFY) > 0


@pytest.mark.model
def test_three_ranks_write_the_text_of_one_with_a_real_model(smollm2: Path) -> None:
    prompt = [504, 3575, 282, 4649, 314]
    found = []
    for ranks in (1, 3):  # it has 9 heads
        started = Engine(smollm2, None, tensor_parallel_size=ranks, kv_cache_bytes=64 << 20)
        with running_engine(
            executor=started.executor, sampler=started._started.sampler
        ) as requests:
            found.append(requests.generate(sequence(prompt, max_tokens=24))[0].ids)
        started._started.close()
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "was ended by signal 9 (SIGKILL)"),
        (signal.SIGSTOP, "has made no progress for 2 s; it was to run step "),
    ],
)
def test_a_lost_rank_is_named_with_what_it_was_to_do(
    model: Path, number: signal.Signals, how: str
) -> None:
    faults: list[str] = []
    told = threading.Event()
    with engine(model) as two:
        two._started.watch(lambda message: (faults.append(message), told.set()))
        ranks = two._started.ranks
        assert ranks is not None
        ranks._step_seconds = 2  # not from the start: a rank's first answer may take longer
        (child,) = ranks._children
        os.kill(child.process.pid, number)
        with pytest.raises(StepError, match="rank 1 "):
            two.executor.execute(decode((6, 0, [1])))
        assert told.wait(60)
        assert faults[0].startswith(f"rank 1 {how}")
        assert child.process.wait(60)
        with pytest.raises(StepError, match="rank 1 "):
            two.executor.execute(decode((6, 0, [1])))


@pytest.mark.parametrize("failure", FAILURES)
def test_a_bucket_that_one_rank_cannot_have_is_in_fallback_on_all(
    model: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    let_rank_fail(monkeypatch, failure)
    with engine(model) as two:
        padded, eager = fallback_logits(two)
    one = Engine(model, None)
    one.executor.execute(prefill([1, 2, 3, 4, 5], [1, 2]))
    expected = one.executor.execute(decode((6, 5, [1, 2]), (7, 0, [3]))).logits
    assert np.allclose(padded, expected, atol=1e-4)
    assert np.allclose(eager, expected, atol=1e-4)


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


@pytest.mark.parametrize(
    ("silent", "what"),
    [("capture", "capture prefill 16"), ("weights", "finish loading its weights")],
)
def test_a_rank_that_does_not_answer_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, silent: str, what: str
) -> None:
    def wait_until_ready(ranks: Ranks) -> None:
        wait(ranks)
        ranks.timeout_seconds = 10

    wait = Ranks.wait_until_ready
    monkeypatch.setattr(Ranks, "wait_until_ready", wait_until_ready)
    let_rank_fail(monkeypatch, f"silent {silent}")
    with pytest.raises(RankError) as raised, engine(model, rank_timeout_seconds=10):
        pass
    assert str(raised.value) == f"rank 1 has not answered within 10 s; it was to {what}"


def test_a_rank_whose_weights_are_slow_holds_up_no_graph(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_rank_fail(monkeypatch, f"weights after {len(BUCKETS)}")
    with engine(model) as two:
        assert set(two.states().values()) == {BucketState.CAPTURED}
        assert two.report.check.state is CheckState.PASSED


def test_a_rank_whose_weights_cannot_be_read_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_rank_fail(monkeypatch, "weights")
    with (
        pytest.raises(ModelError, match=r"^rank 1: model\.safetensors: cannot be read$"),
        engine(model),
    ):
        pass


def test_a_rank_whose_disk_is_slow_is_late_and_not_lost() -> None:
    def lose(rank: int, how: str) -> RankError:
        raise AssertionError(f"rank {rank} {how}")

    question = Question("store its graphs", {1: Future()}, lose, 0.01)
    assert question.problem_by(0.01) == "a rank has not been done within 0.01 s"
    question.answer(1, Answer(number=1, problem="the disk is full"))
    assert question.problem_by(0.01) == "rank 1: the disk is full"
