"""The report on its way to a sidecar that comes, goes, and says strange things."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from warmgraph_api import wire
from warmgraph_api.report import (
    Bucket,
    BucketMode,
    BucketState,
    Load,
    Stage,
    StepKind,
    WarmupReport,
)
from warmgraph_engine.report import Publisher, Reporter, process_started_at

PATIENCE_SECONDS = 30


def bucket(state: BucketState = BucketState.PENDING) -> Bucket:
    return Bucket(kind=StepKind.DECODE, size=1, mode=BucketMode.EAGER, state=state)


class Sidecar:
    """Listens where the sidecar would."""

    def __init__(self, path: Path) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._server.settimeout(PATIENCE_SECONDS)

    def accept(self) -> None:
        self.connection, _ = self._server.accept()
        self.connection.settimeout(PATIENCE_SECONDS)
        self.lines = self.connection.makefile("rb")

    def next(self) -> WarmupReport:
        return wire.decode_report(self.lines.readline())

    def until(self, stage: Stage) -> WarmupReport:
        while True:
            report = self.next()
            if report.stage is stage:
                return report

    def close(self) -> None:
        self.lines.close()
        self.connection.close()

    def end(self) -> None:
        self._server.close()


@pytest.fixture
def reporter() -> Reporter:
    return Reporter(model="m", revision="r1", buckets=(bucket(),), started_at=time.time() - 2)


@pytest.fixture
def drained() -> list[bool]:
    return []


@pytest.fixture
def publisher(tmp_path: Path, reporter: Reporter, drained: list[bool]) -> Iterator[Publisher]:
    thread = Publisher(reporter, tmp_path / "s", on_drain=lambda: drained.append(True))
    thread.start()
    yield thread
    thread.stop()
    assert not thread.is_alive()


@pytest.fixture
def sidecar(tmp_path: Path, publisher: Publisher) -> Iterator[Sidecar]:
    sidecar = Sidecar(tmp_path / "s")  # after the engine: it must keep trying
    sidecar.accept()
    yield sidecar
    sidecar.close()
    sidecar.end()


def test_every_change_is_reported(reporter: Reporter, sidecar: Sidecar) -> None:
    first = sidecar.next()
    assert (first.model, first.revision, first.stage) == ("m", "r1", Stage.STARTING)
    reporter.set_bucket(bucket(BucketState.CAPTURED))
    reporter.load = lambda: Load(running=2)
    reporter.set_stage(Stage.SERVING)
    report = sidecar.until(Stage.SERVING)
    assert report.buckets == [bucket(BucketState.CAPTURED)]
    assert report.load.running == 2
    assert report.sequence > first.sequence
    assert report.progress > first.progress


def test_a_live_engine_that_stands_still_reports_without_progress(sidecar: Sidecar) -> None:
    reports = [sidecar.next() for _ in range(3)]
    assert reports[-1].sequence > reports[0].sequence
    assert reports[-1].progress == reports[0].progress


def test_a_restarted_sidecar_is_found_again(reporter: Reporter, sidecar: Sidecar) -> None:
    boot = sidecar.next().boot_id
    sidecar.close()
    reporter.set_stage(Stage.SERVING)
    sidecar.accept()
    report = sidecar.next()
    assert (report.boot_id, report.stage) == (boot, Stage.SERVING)


def test_a_drain_command_arrives(sidecar: Sidecar, drained: list[bool]) -> None:
    sidecar.next()
    sidecar.connection.sendall(wire.encode_line(wire.Command(name=wire.CommandName.DRAIN)))
    while not drained:
        sidecar.next()


def test_a_bad_command_drops_the_connection_only(sidecar: Sidecar) -> None:
    boot = sidecar.next().boot_id
    sidecar.connection.sendall(b'{"name":"explode"}\n')
    while sidecar.lines.readline():
        pass
    sidecar.close()
    sidecar.accept()
    assert sidecar.next().boot_id == boot


def test_a_sidecar_that_reads_nothing_never_blocks_the_engine(
    tmp_path: Path, publisher: Publisher, reporter: Reporter
) -> None:
    sidecar = Sidecar(tmp_path / "s")
    sidecar.accept()
    for _ in range(5000):
        reporter.move()
    reporter.set_stage(Stage.SERVING)
    sidecar.close()
    sidecar.end()


def test_without_a_sidecar_the_engine_runs_just_the_same(
    publisher: Publisher, reporter: Reporter
) -> None:
    reporter.set_stage(Stage.SERVING)
    assert reporter.snapshot().stage is Stage.SERVING


def test_the_last_word_is_sent_at_the_end(
    reporter: Reporter, publisher: Publisher, sidecar: Sidecar
) -> None:
    reporter.fail("WarmupFailed", "no such model")
    publisher.stop()
    *_, last = sidecar.lines
    report = wire.decode_report(last)
    assert report.fault is not None
    assert (report.stage, report.fault.message) == (Stage.FAILED, "no such model")


def test_a_failure_stays_and_draining_stays(reporter: Reporter) -> None:
    reporter.set_stage(Stage.DRAINING)
    reporter.set_stage(Stage.SERVING)
    assert reporter.snapshot().stage is Stage.DRAINING
    reporter.fail("EngineFault", "gone")
    reporter.set_stage(Stage.DRAINING)
    assert reporter.snapshot().stage is Stage.FAILED


def test_stages_of_the_start_are_put_on_a_timeline(reporter: Reporter) -> None:
    with reporter.span("Load model"):
        pass
    reporter.set_ready()
    report = reporter.snapshot()
    assert report.timeline[0].name == "Load model"
    assert report.timeline[0].start_seconds >= 2
    assert report.ready_seconds is not None
    assert report.ready_seconds >= report.timeline[0].start_seconds


def test_stages_are_told_in_the_order_in_which_they_began(reporter: Reporter) -> None:
    with reporter.span("Load model"), reporter.span("Load tokenizer"):
        pass
    names = [span.name for span in reporter.snapshot().timeline]
    assert names == ["Load model", "Load tokenizer"]


def test_the_process_started_before_now_and_after_the_machine() -> None:
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    age = time.time() - process_started_at()
    assert 0 <= age <= uptime
