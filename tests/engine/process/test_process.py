"""`warmgraph-engine` as a process: from the command line, without a cluster."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.checkpoints import write_servable_checkpoint
from tests.engine.process.engines import PATIENCE_SECONDS, Engine, Start, reports_of, starting
from warmgraph_api import wire
from warmgraph_api.report import CacheResult, Stage

pytestmark = pytest.mark.timeout(3 * PATIENCE_SECONDS)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_servable_checkpoint(tmp_path / "model")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


def test_it_listens_at_once_serves_when_warm_and_stops_cleanly(start: Start, model: Path) -> None:
    engine = start(f"--model={model}")
    status, body = engine.get("/health")
    assert status in (200, 503), body
    engine.serve()
    assert engine.complete("hello")
    metrics = engine.get("/metrics")[1]
    assert 'warmgraph_steps_total{bucket="1",kind="decode",path="exact",reason="bucket"}' in metrics
    assert engine.stop() == 0
    assert "Draining" in engine.log


def graph_seconds(engine: Engine, state: str) -> list[float]:
    """How long each graph took to get into this state."""
    pattern = rf'^warmgraph_graph_capture_seconds{{.*state="{state}".*}} (\S+)$'
    return [float(s) for s in re.findall(pattern, engine.get("/metrics")[1], re.MULTILINE)]


def test_the_second_start_restores_what_the_first_captured(
    start: Start, model: Path, tmp_path: Path
) -> None:
    flags = [f"--model={model}", f"--cache-directory={tmp_path / 'cache'}"]
    first = start(*flags)
    first.serve()
    answer = first.complete("hello there")
    first.wait_for(lambda: "stored 3 graphs" in first.log)
    captured = graph_seconds(first, "Captured")
    assert first.stop() == 0
    second = start(*flags)
    second.serve()
    assert "graph cache: Hit" in second.log
    assert "Capturing" not in second.log
    restored = graph_seconds(second, "Restored")
    assert len(captured) == len(restored) == 3
    # Milliseconds each: the shortest is the one that nothing else held up.
    assert min(restored) < min(captured)
    assert "known answers: 3 by stored answer, 0 in full" in second.log
    checks = 'warmgraph_graph_checks_total{bucket="2",kind="decode",path="stored_answer"'
    assert checks + ',reason="equal"} 1.0' in second.get("/metrics")[1]
    assert second.complete("hello there") == answer
    assert second.stop() == 0
    eager = start(f"--model={model}", "--execution=Eager")
    eager.serve()
    assert eager.complete("hello there") == answer


def test_drafts_and_their_stored_graphs_leave_the_answer_as_it_is(
    start: Start, model: Path, tmp_path: Path
) -> None:
    plain = start(f"--model={model}")
    plain.serve()
    expected = plain.complete("ababababab", 40)
    assert plain.stop() == 0
    flags = [
        f"--model={model}",
        f"--cache-directory={tmp_path / 'cache'}",
        *("--speculative-method=NGram", "--speculative-tokens=3", "--verify-buckets=1,2"),
    ]
    first = start(*flags)
    _answers_with_drafts(first, expected)
    first.wait_for(lambda: "stored 5 graphs" in first.log)
    assert first.stop() == 0
    second = start(*flags)
    _answers_with_drafts(second, expected)
    assert second.stop() == 0
    assert "graph cache: Hit" in second.log
    assert "Capturing" not in second.log


def _answers_with_drafts(engine: Engine, expected: str) -> None:
    engine.serve()
    assert engine.complete("ababababab", 40) == expected
    values = dict(line.rsplit(" ", 1) for line in engine.get("/metrics")[1].splitlines())
    verified = 'steps_total{bucket="1",kind="verify",path="exact",reason="bucket"}'
    assert float(values[f"warmgraph_{verified}"]) > 0
    assert float(values["warmgraph_spec_decode_accepted_tokens_total"]) > 0


AS_NOBODY = (
    *("setpriv", "--reuid=1234567", "--regid=7654321", "--clear-groups"),
    # The interpreter may lie in root's home. Reading it is all that this allows.
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv, to start it as somebody else",
)
@pytest.mark.parametrize("cache", ["missing", "read-only", "someone-elses"])
def test_a_random_user_without_a_home_on_a_read_only_system_is_served(
    start: Start, model: Path, tmp_path: Path, cache: str
) -> None:
    # Where pytest keeps its folders only root may look.
    public = Path("/tmp") / f"warmgraph-test-{os.getpid()}-{cache}"
    shutil.copytree(model, public / "model")
    (public / "cache").mkdir()
    if cache == "someone-elses":
        (public / "cache").chmod(0o777)
        (public / "cache" / ("0" * 64)).mkdir(mode=0o700)
    folder = public / "nowhere" / "cache" if cache == "missing" else public / "cache"
    try:
        engine = start(
            f"--model={public / 'model'}",
            f"--cache-directory={folder}",
            prefix=AS_NOBODY,
            cwd="/",
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
                "HOME": "/nonexistent",
                "TMPDIR": "/nonexistent",
            },
        )
        engine.serve()
        assert engine.complete("hello")
        if cache != "someone-elses":
            engine.wait_for(lambda: "graphs are not stored: " in engine.log)
        assert engine.stop() == 0
    finally:
        shutil.rmtree(public)


def test_more_connections_than_the_soft_limit_of_open_files_do_not_lock_it_up(
    start: Start, model: Path
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    engine = start(f"--model={model}", prefix=("prlimit", f"--nofile=64:{hard}"))
    engine.serve()
    address = urllib.parse.urlsplit(engine.url())
    idle = [socket.create_connection((address.hostname, address.port)) for _ in range(100)]
    assert engine.complete("hello")
    for connection in idle:
        connection.close()
    assert engine.stop() == 0


def test_a_model_that_cannot_be_loaded_ends_the_process_with_the_reason(
    start: Start, tmp_path: Path
) -> None:
    engine = start(f"--model={tmp_path / 'nothing'}")
    assert engine.process.wait(PATIENCE_SECONDS) == 1
    assert "no such folder" in engine.log
    assert "Traceback" not in engine.log


def test_a_port_in_use_ends_the_process_with_the_reason(start: Start, model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        engine = start(f"--model={model}", f"--port={port}")
        assert engine.process.wait(PATIENCE_SECONDS) == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in engine.log


def test_it_can_be_stopped_while_it_loads(start: Start, model: Path) -> None:
    engine = start(f"--model={model}")
    engine.url()
    assert engine.stop() == 0


def test_the_sidecar_sees_the_whole_start(start: Start, model: Path, tmp_path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen()
    server.settimeout(PATIENCE_SECONDS)
    engine = start(
        f"--model={model}",
        f"--report-socket={tmp_path / 's'}",
        f"--cache-directory={tmp_path / 'cache'}",
        "--model-revision=r7",
    )
    connection, _ = server.accept()
    reports = reports_of(connection)
    serving = next(r for r in reports if r.stage is Stage.SERVING)
    assert serving.revision == "r7"
    assert serving.ready_seconds is not None
    assert serving.cache.result is CacheResult.MISS
    names = [span.name for span in serving.timeline]
    assert names[0] == "Start process"
    assert {"Load model", "Capture graphs", "Known-answer check"} <= set(names)
    assert next(r for r in reports if r.cache.published)
    connection.sendall(wire.encode_line(wire.Command(name=wire.CommandName.DRAIN)))
    assert next(r for r in reports if r.stage is Stage.DRAINING)
    assert engine.complete("still served while it drains")
    assert engine.stop() == 0
    connection.close()
    server.close()


def test_with_a_sidecar_a_failed_start_stays_to_tell_its_reason(
    start: Start, tmp_path: Path
) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen()
    server.settimeout(PATIENCE_SECONDS)
    engine = start(f"--model={tmp_path / 'nothing'}", f"--report-socket={tmp_path / 's'}")
    connection, _ = server.accept()
    failed = next(r for r in reports_of(connection) if r.fault is not None)
    assert failed.stage is Stage.FAILED
    assert failed.fault is not None
    assert failed.fault.reason == "WarmupFailed"
    assert engine.process.poll() is None
    assert engine.stop() == 1
    connection.close()
    server.close()
