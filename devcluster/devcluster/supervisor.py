"""Keeps a cluster's processes as they should be: starts what is missing, restarts what changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from devcluster import record as records
from devcluster.components import Component
from devcluster.console import say
from devcluster.paths import SOURCES, SYSTEM_PATH, Layout
from devcluster.process import alive, spawn, stop
from devcluster.record import Record, Started


def fingerprint(component: Component, etc: Path) -> str:
    """Of the command line, the environment and the configuration files below `etc` it names."""
    digest = hashlib.sha256()
    settings = (f"{name}={value}" for name, value in sorted(component.environment.items()))
    for argument in (*settings, *component.argv):
        digest.update(argument.encode() + b"\0")
        file = Path(argument.partition("=")[2] or argument)
        if etc in file.parents and file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Supervisor:
    """Reads and writes the record's processes; saves it after each change, so that a crash of
    this tool loses track of nothing."""

    def __init__(self, layout: Layout, record: Record) -> None:
        self.layout = layout
        self.record = record

    def running(self, name: str) -> bool:
        started = self.record.processes.get(name)
        return started is not None and alive(started.identity)

    def is_running(self, name: str) -> Callable[[], bool]:
        return lambda: self.running(name)

    def ensure(self, component: Component) -> bool:
        """Whether the component had to be started."""
        name = component.name
        current = fingerprint(component, self.layout.etc)
        if started := self.record.processes.get(name):
            if self.running(name):
                if started.fingerprint == current:
                    return False
                say(f"  {name} changed: restarting it")
                stop(started.identity)
            else:
                say(f"  {name} is not running any more: starting it")
        environment = {
            "PATH": SYSTEM_PATH,
            "HOME": str(self.layout.home),
            # The agent is part of this package, which nobody has installed.
            "PYTHONPATH": str(SOURCES),
            **component.environment,
        }
        identity = spawn(component.argv, log=self.layout.log(name), environment=environment)
        self.record.processes[name] = Started(identity, current)
        self.save()
        return True

    def end(self, name: str) -> None:
        """Ends a component, if it runs, and forgets it."""
        if started := self.record.processes.pop(name, None):
            stop(started.identity)
            self.save()

    def save(self) -> None:
        records.save(self.layout.record, self.record)
