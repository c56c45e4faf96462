"""An engine as a process of its own, asked through HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.client import BASE_URL, PORT, REQUEST, URL
from warmgraph_api.report import BucketState, WarmupReport
from warmgraph_api.wire import decode_report

PATIENCE_SECONDS = 300


class Engine(contextlib.AbstractContextManager["Engine"]):
    """A running engine, from exec to its first answer; ended with its context."""

    def __init__(self, model: Path, work: Path, flags: Sequence[str]) -> None:
        """`work` gets its log, its graph cache, its compiled kernels and Python's bytecode. Returns
        when a request for one token, sent again and again from the beginning, is answered."""
        self._log = work / "engine.log"
        self._reports = _Reports(work / "reports.sock")
        began = time.perf_counter()
        # Bytecode is kept, as it is in an image: from the first start on `work`.
        kept = {"TRITON_CACHE_DIR": work / "triton", "PYTHONPYCACHEPREFIX": work / "bytecode"}
        environment = {**os.environ, **{name: str(folder) for name, folder in kept.items()}}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "warmgraph_engine", *flags, f"--model={model}"]
        command += ["--host=127.0.0.1", f"--port={PORT}", "--served-model-name=m"]
        command += [f"--cache-directory={work / 'cache'}"]
        command += [f"--report-socket={self._reports.path}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log, env=environment)
        try:
            self._wait()
        except BaseException:
            self._process.kill()
            raise
        self.first_token_seconds = time.perf_counter() - began

    def _wait(self) -> None:
        body = json.dumps({**REQUEST, "max_tokens": 1}).encode()
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            request = urllib.request.Request(URL, body, {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answer.read()
                return
            except (urllib.error.URLError, ConnectionError):
                if self._process.poll() is not None:
                    raise RuntimeError(self._log.read_text()) from None
                time.sleep(0.005)
        raise RuntimeError(f"no answer within {PATIENCE_SECONDS} s:\n{self._log.read_text()}")

    @property
    def report(self) -> WarmupReport:
        """The engine's last one."""
        return self._reports.last()

    def scrape(self) -> Scrape:
        with urllib.request.urlopen(f"{BASE_URL}/metrics", timeout=60) as answer:
            return Scrape(answer.read().decode())

    def wait_until_stored(self) -> None:
        """Until what it captured before it was ready is in the graph cache. Raises RuntimeError
        if that takes longer than PATIENCE_SECONDS."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.report.cache.published:
            if time.monotonic() > end:
                raise RuntimeError(f"no graphs were stored within {PATIENCE_SECONDS} s")
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._reports.close()


class Scrape:
    """An engine's metrics at one moment."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of a name that have these labels; 0 if there is none yet."""
        return sum(self._values(name, labels))

    def series(self, name: str, **labels: str) -> int:
        """How many of a name have these labels."""
        return len(self._values(name, labels))

    def _values(self, name: str, labels: Mapping[str, str]) -> list[float]:
        return [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


class Window:
    """What metrics counted between two moments."""

    def __init__(self, before: Scrape, after: Scrape) -> None:
        self._before, self._after = before, after

    def total(self, name: str, **labels: str) -> float:
        return self._after.total(name, **labels) - self._before.total(name, **labels)

    @property
    def captured(self) -> int:
        """Buckets whose graphs were captured."""
        name, state = "warmgraph_graph_capture_seconds", BucketState.CAPTURED
        return self._after.series(name, state=state) - self._before.series(name, state=state)

    @property
    def gap_share(self) -> float:
        """Of the GPU's time while there were requests: waiting for the host. Raises RuntimeError
        if the engine measured none."""
        busy = self.total("warmgraph_gpu_busy_seconds_total")
        idle = self.total("warmgraph_gpu_idle_seconds_total")
        if not busy:
            raise RuntimeError("the engine measured no GPU time; it does on --device cuda only")
        return idle / (busy + idle)


class _Reports:
    """The sidecar's end of the report socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._line = b""
        self._some = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        connection, _ = self._listening.accept()
        with connection, connection.makefile("rb") as lines:
            for self._line in lines:
                self._some.set()

    def last(self) -> WarmupReport:
        if not self._some.wait(10):
            raise RuntimeError("the engine sent no report within 10 s")
        return decode_report(self._line)

    def close(self) -> None:
        self._listening.close()
