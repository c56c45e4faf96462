"""`warmgraph-engine` as a process, for the tests that start some."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warmgraph_api import wire
from warmgraph_api.report import WarmupReport

PATIENCE_SECONDS = 90
"""Importing torch alone takes 4 s, and ten times that on a busy machine."""

FLAGS = [
    "--host=127.0.0.1",
    "--port=0",
    "--max-model-length=64",
    "--kv-cache-memory=64Ki",
    "--kv-block-size=4",
    "--decode-buckets=1,2",
    "--prefill-buckets=16",
    "--max-batch-tokens=32",
]


class Engine:
    """A running process."""

    def __init__(
        self, arguments: list[str], log: Path, *, prefix: tuple[str, ...] = (), **options: Any
    ) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "warmgraph_engine", *FLAGS, *arguments],
                stderr=file,
                **options,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            assert self.process.poll() is None, self.log
            time.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE_SECONDS} s:\n{self.log}")

    def url(self) -> str:
        line = self.wait_for(
            lambda: next((n for n in self.log.splitlines() if "listening on" in n), None)
        )
        return f"http://{line.rpartition(' ')[2]}"

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url() + path, timeout=PATIENCE_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def serve(self) -> None:
        self.wait_for(lambda: self.get("/health")[0] == 200)

    def complete(self, prompt: str, max_tokens: int = 8) -> str:
        body = {"model": "model", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        request = urllib.request.Request(
            self.url() + "/v1/completions",
            json.dumps({**body, "ignore_eos": True}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            text = json.load(response)["choices"][0]["text"]
        assert isinstance(text, str)
        return text

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


def children(engine: Engine) -> list[int]:
    """Process ids of the other ranks."""
    found = subprocess.run(
        ["pgrep", "-P", str(engine.process.pid), "-f", "parallel.worker"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(line) for line in found.stdout.split()]


Start = Callable[..., Engine]


@contextmanager
def starting(folder: Path, *flags: str) -> Iterator[Start]:
    """Starts engines with these flags and others, with their logs in a folder; what still runs at
    the end is killed, and so are other ranks."""
    engines: list[Engine] = []

    def start(*arguments: str, **options: Any) -> Engine:
        log = folder / f"log-{len(engines)}"
        engines.append(Engine([*flags, *arguments], log, **options))
        return engines[-1]

    yield start
    for engine in engines:
        for process in children(engine):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if engine.process.poll() is None:
            engine.process.kill()
            engine.process.wait()


def reports_of(connection: socket.socket) -> Iterator[WarmupReport]:
    connection.settimeout(PATIENCE_SECONDS)
    with connection.makefile("rb") as lines:
        for line in lines:
            yield wire.decode_report(line)
