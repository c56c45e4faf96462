"""Graphs off and on again under an engine that serves, on whatever device it runs."""

from __future__ import annotations

import re
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.engine.process.engines import Engine

ROUNDS = 3
TOKENS = 40


def steps(engine: Engine, reason: str) -> int:
    """Decode steps that were counted with a reason."""
    pattern = rf'^warmgraph_steps_total{{.*kind="decode".*reason="{reason}"}} (\S+)$'
    return int(sum(map(float, re.findall(pattern, engine.get("/metrics")[1], re.MULTILINE))))


def switch(engine: Engine, number: signal.Signals) -> None:
    """And wait until it is done."""
    before = engine.log.count("graphs are switched")
    engine.process.send_signal(number)
    engine.wait_for(lambda: engine.log.count("graphs are switched") > before)


def check_switching_keeps_serving(engine: Engine) -> None:
    """One request after the other is answered alike while graphs go off and on; each way is taken
    by the requests that begin after the switch."""
    expected = engine.complete("hello there", TOKENS)
    assert "warmgraph_graphs_enabled 1.0" in engine.get("/metrics")[1]
    done = False

    def ask() -> list[str]:
        answers = []
        while not done:
            answers.append(engine.complete("hello there", TOKENS))
        return answers

    with ThreadPoolExecutor(1) as client:
        asking = client.submit(ask)
        try:
            for _ in range(ROUNDS):
                switch(engine, signal.SIGUSR1)
                assert engine.complete("hello there", TOKENS) == expected
                switch(engine, signal.SIGUSR2)
                assert engine.complete("hello there", TOKENS) == expected
        finally:
            done = True
        assert set(asking.result()) <= {expected}
    switch(engine, signal.SIGUSR1)
    assert "warmgraph_graphs_enabled 0.0" in engine.get("/metrics")[1]
    off, on = steps(engine, "graphs_off"), steps(engine, "bucket")
    assert engine.complete("hello there", TOKENS) == expected
    assert steps(engine, "graphs_off") > off
    assert steps(engine, "bucket") == on
    switch(engine, signal.SIGUSR2)
    assert engine.complete("hello there", TOKENS) == expected
    assert steps(engine, "bucket") > on
