"""An engine of two ranks on a CPU, as processes: its answers, its cache, and the loss of a rank."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.checkpoints import write_servable_checkpoint
from tests.engine.process.engines import PATIENCE_SECONDS, Engine, Start, children, starting
from warmgraph_api import wire
from warmgraph_api.report import Stage

pytestmark = pytest.mark.timeout(4 * PATIENCE_SECONDS)

TWO = "--tensor-parallel-size=2"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_servable_checkpoint(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture
def start(tmp_path: Path, model: Path) -> Iterator[Start]:
    with starting(tmp_path, f"--model={model}") as start:
        yield start


def other_rank(engine: Engine) -> int:
    (process,) = children(engine)
    return process


def runs(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def ends(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def steps_done(engine: Engine) -> list[float]:
    """By rank."""
    values = dict(line.rsplit(" ", 1) for line in engine.get("/metrics")[1].splitlines())
    name = "warmgraph_rank_steps_total"
    return [float(values[f'{name}{{rank="{rank}",state="done"}}']) for rank in (0, 1)]


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
    worker = other_rank(first)
    assert first.complete("hello there", 40) == expected
    metrics = first.get("/metrics")[1]
    assert 'warmgraph_graph_replays_total{bucket="1",kind="decode"}' in metrics
    # Which step was its last is another matter: graphs are proven when nobody asks anything.
    assert re.search(r'warmgraph_rank_graph{bucket="\d+",kind="\w+",rank="1"}', metrics)
    first.wait_for(lambda: len(set(steps_done(first))) == 1)
    assert steps_done(first)[0] > 40
    first.wait_for(lambda: "stored 3 graphs" in first.log)
    assert first.stop() == 0
    assert not runs(worker)

    second = start(TWO, cache)
    second.serve()
    assert "graph cache: Hit" in second.log
    assert "Capturing" not in second.log
    assert "known answers: 3 by stored answer, 0 in full" in second.log
    assert second.complete("hello there", 40) == expected
    assert second.stop() == 0

    eager = start(TWO, "--execution=Eager")
    eager.serve()
    assert eager.complete("hello there", 40) == expected
    assert eager.stop() == 0


def test_a_silent_rank_is_named_and_the_engine_ends(start: Start) -> None:
    engine = start(TWO, "--rank-timeout-seconds=10")
    engine.serve()
    worker = other_rank(engine)
    os.kill(worker, signal.SIGSTOP)
    with contextlib.suppress(OSError):
        engine.complete("hello there", 40)
    assert engine.process.wait(PATIENCE_SECONDS) == 1
    assert not runs(worker)
    lost = "EngineFault: rank 1 has made no progress for 10 s; it was to run step"
    assert lost in engine.log


def test_a_rank_lost_between_requests_is_reported_to_the_sidecar(
    start: Start, tmp_path: Path
) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen()
    server.settimeout(PATIENCE_SECONDS)
    engine = start(TWO, f"--report-socket={tmp_path / 's'}")
    connection, _ = server.accept()
    connection.settimeout(PATIENCE_SECONDS)
    with connection, server, connection.makefile("rb") as lines:
        reports = map(wire.decode_report, lines)
        assert next(r for r in reports if r.stage is Stage.SERVING)
        os.kill(other_rank(engine), signal.SIGKILL)
        failed = next(r for r in reports if r.fault is not None)
        assert failed.fault is not None
        assert failed.fault.reason == "EngineFault"
        assert "rank 1 was ended by signal 9" in failed.fault.message
        assert engine.process.poll() is None, "it stays to tell its reason"
        assert engine.stop() == 1


def test_the_other_rank_ends_with_a_killed_engine(start: Start) -> None:
    engine = start(TWO)
    engine.serve()
    worker = other_rank(engine)
    engine.process.kill()
    engine.process.wait()
    ends(lambda: not runs(worker))


def test_it_can_be_stopped_while_its_ranks_load(start: Start) -> None:
    engine = start(TWO)
    engine.url()
    engine.wait_for(lambda: children(engine))
    worker = other_rank(engine)
    assert engine.stop() == 0
    ends(lambda: not runs(worker))


def test_a_model_whose_heads_cannot_be_shared_ends_the_process_with_the_reason(
    start: Start,
) -> None:
    engine = start("--tensor-parallel-size=3")
    assert engine.process.wait(PATIENCE_SECONDS) == 1
    assert "--tensor-parallel-size 3 does not divide the model's 4 attention heads" in engine.log
    assert "Traceback" not in engine.log
