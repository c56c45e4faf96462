"""`warmgraph-engine --device cuda` as a process, and its second start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.engine.process.engines import PATIENCE_SECONDS, Engine, Start, reports_of
from tests.engine.process.switching import check_switching_keeps_serving
from warmgraph_api.report import BucketState, CheckState, Stage

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def libraries(engine: Engine) -> str:
    """What the process has mapped."""
    return Path(f"/proc/{engine.process.pid}/maps").read_text()


def test_the_second_start_restores_the_graphs_without_torch_or_a_compiler(
    start: Start, tmp_path: Path
) -> None:
    cache = f"--cache-directory={tmp_path / 'cache'}"
    first = start(cache)
    first.serve()
    answer = first.complete("hello there")
    metrics = first.get("/metrics")[1]
    assert 'kind="decode",path="exact",reason="bucket"' in metrics
    assert "libtorch" not in libraries(first)
    first.wait_for(lambda: "stored 4 graphs" in first.log)
    assert first.stop() == 0

    second = start(cache)
    second.serve()
    assert "graph cache: Hit" in second.log
    assert "known answers: 4 by stored answer, 0 in full" in second.log
    assert second.complete("hello there") == answer
    assert "libtorch" not in libraries(second)
    assert "libtriton" not in libraries(second)
    assert second.stop() == 0

    eager = start("--execution=Eager")
    eager.serve()
    assert eager.complete("hello there") == answer
    assert eager.stop() == 0


def test_graphs_of_another_quantization_are_a_miss_and_its_own_are_restored(
    start: Start, tmp_path: Path
) -> None:
    cache = f"--cache-directory={tmp_path / 'cache'}"
    plain = start(cache)
    plain.serve()
    plain.wait_for(lambda: "stored 4 graphs" in plain.log)
    assert plain.stop() == 0

    quantized = start(cache, "--quantization=fp8")
    quantized.serve()
    assert "quantization is fp8, stored graphs have none" in quantized.log
    answer = quantized.complete("hello there")
    quantized.wait_for(lambda: "stored 4 graphs" in quantized.log)
    assert quantized.stop() == 0

    again = start(cache, "--quantization=fp8")
    again.serve()
    assert "graph cache: Hit" in again.log
    assert "known answers: 4 by stored answer, 0 in full" in again.log
    assert again.complete("hello there") == answer
    assert "libtorch" not in libraries(again)
    assert "libtriton" not in libraries(again)
    assert again.stop() == 0


def test_ready_means_that_every_eager_bucket_is_captured_and_checked(
    start: Start, tmp_path: Path
) -> None:
    """And so the very first request is replayed from graphs."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen()
    server.settimeout(PATIENCE_SECONDS)
    engine = start(f"--report-socket={tmp_path / 's'}")
    connection, _ = server.accept()
    for report in reports_of(connection):
        if report.stage is Stage.SERVING:
            break
        assert report.ready_seconds is None
    assert {bucket.state for bucket in report.buckets} == {BucketState.CAPTURED}
    assert report.check.state is CheckState.PASSED
    engine.serve()
    assert engine.complete("hello there")
    steps = [
        line for line in engine.get("/metrics")[1].splitlines() if "warmgraph_steps_total{" in line
    ]
    assert steps
    assert not [line for line in steps if 'path="eager"' in line]
    assert engine.stop() == 0
    connection.close()
    server.close()


def test_switching_graphs_off_and_on_keeps_serving_with_equal_answers(
    start: Start,
) -> None:
    engine = start()
    engine.serve()
    check_switching_keeps_serving(engine)
    assert engine.stop() == 0
