"""Graphs are switched off and on while an engine serves."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.checkpoints import write_servable_checkpoint
from tests.engine.process.engines import PATIENCE_SECONDS, Engine, Start, starting
from tests.engine.process.switching import check_switching_keeps_serving, steps

pytestmark = pytest.mark.timeout(3 * PATIENCE_SECONDS)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    model = write_servable_checkpoint(tmp_path / "model")
    with starting(tmp_path, f"--model={model}") as start:
        yield start


def check_serves_without_graphs(engine: Engine) -> None:
    engine.serve()
    assert engine.complete("hello")
    assert steps(engine, "graphs_off") > 0
    assert steps(engine, "bucket") == 0


def test_switching_graphs_off_and_on_keeps_serving_with_equal_answers(
    start: Start,
) -> None:
    engine = start()
    engine.serve()
    check_switching_keeps_serving(engine)
    assert engine.stop() == 0


def test_a_switch_while_the_model_loads_holds_from_the_first_request_on(
    start: Start,
) -> None:
    engine = start()
    engine.url()  # it listens, and so it takes signals
    engine.process.send_signal(signal.SIGUSR1)
    check_serves_without_graphs(engine)


def test_a_switch_while_python_imports_waits_until_somebody_listens(start: Start) -> None:
    engine = start()
    status = Path(f"/proc/{engine.process.pid}/status")

    def held() -> bool:
        [mask] = re.findall(r"SigBlk:\s*(\w+)", status.read_text())
        return bool(int(mask, 16) >> (signal.SIGUSR1 - 1) & 1)

    engine.wait_for(held)
    assert "listening" not in engine.log
    engine.process.send_signal(signal.SIGUSR1)
    check_serves_without_graphs(engine)


def test_an_engine_that_was_started_without_graphs_says_that_it_has_none(
    start: Start,
) -> None:
    engine = start("--execution=Eager")
    engine.serve()
    engine.process.send_signal(signal.SIGUSR2)
    engine.wait_for(lambda: "there are no graphs to switch on or off" in engine.log)
    assert engine.complete("hello")
    assert "warmgraph_graphs_enabled 0.0" in engine.get("/metrics")[1]
