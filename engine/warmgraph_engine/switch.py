"""Graphs off and on again while the engine serves, by signal: SIGUSR1 and SIGUSR2.

For whoever suspects a graph of a wrong answer or of a slow one, and has a pod that must not stop.
A signal is open to those who may run a program in the container, and to nobody on the network.
It lasts as long as the process; `engine.execution` of the resource is the setting that stays.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Protocol

from prometheus_client import CollectorRegistry, Gauge

from warmgraph_api.resource import Execution

_log = logging.getLogger(__name__)

SIGNALS = {signal.SIGUSR1: Execution.EAGER, signal.SIGUSR2: Execution.GRAPHS}


class Switchable(Protocol):
    """What follows the switch (executor.py)."""

    def set_execution(self, execution: Execution) -> None: ...


class ExecutionSwitch:
    """Belongs to the event loop's thread. Steps follow from the next one on; requests that run
    go on, and their tokens are the same either way."""

    def __init__(self, setting: Execution, registry: CollectorRegistry) -> None:
        self._setting = self.execution = setting
        self._target: Switchable | None = None
        gauge = Gauge(
            "warmgraph_graphs_enabled",
            "1 if steps may take graphs, 0 where they are switched off.",
            registry=registry,
        )
        gauge.set_function(lambda: self.execution is Execution.GRAPHS)

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the signals, those too that came since the process started (__main__.py)."""
        for number, execution in SIGNALS.items():
            loop.add_signal_handler(number, self.set, execution)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def attach(self, target: Switchable) -> None:
        """What was switched while the model loaded holds from its first step on."""
        self._target = target
        target.set_execution(self.execution)

    def set(self, execution: Execution) -> None:
        if self._setting is Execution.EAGER:
            _log.warning("--execution Eager: there are no graphs to switch on or off")
            return
        self.execution = execution
        if self._target is not None:
            self._target.set_execution(execution)
        _log.info("graphs are switched %s", "on" if execution is Execution.GRAPHS else "off")
