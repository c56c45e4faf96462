"""The warmup report of this process: what is known so far, and the thread that publishes it.

Whoever knows something tells the Reporter, from any thread. The Publisher sends it to the
sidecar's socket on every change and once a second, and reconnects for ever: without a sidecar the
engine runs just the same.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from warmgraph_api import wire
from warmgraph_api.report import (
    Bucket,
    Cache,
    Check,
    Fault,
    Load,
    Span,
    Stage,
    StepKind,
    WarmupReport,
)

_log = logging.getLogger(__name__)

SEND_SECONDS = 1.0
"""A sidecar that takes no bytes for this long is as good as gone; the connection is made anew."""

RECONNECT_SECONDS = 0.25
"""Often enough that a restarted sidecar learns of a warm engine before its next probe."""


class Reporter:
    """Holds the report. Thread-safe."""

    def __init__(
        self, *, model: str, revision: str, buckets: tuple[Bucket, ...], started_at: float
    ) -> None:
        self._changed = threading.Condition()
        self._version = 0
        self._buckets: dict[tuple[StepKind, int], Bucket] = {(b.kind, b.size): b for b in buckets}
        self._report = WarmupReport(
            boot_id=secrets.token_hex(8),
            sequence=0,
            progress=0,
            stage=Stage.STARTING,
            model=model,
            revision=revision,
            started_at=started_at,
        )
        self.load: Callable[[], Load] = Load
        """What is in flight; the engine loop's once there is one."""

    def snapshot(self) -> WarmupReport:
        """The report to send now."""
        load = self.load()
        with self._changed:
            self._report = msgspec.structs.replace(
                self._report,
                sequence=self._report.sequence + 1,
                buckets=list(self._buckets.values()),
                load=load,
            )
            return self._report

    def wait(self, seen: int, timeout: float) -> int:
        """Until the report has changed since the version `seen`; the version it has now."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != seen, timeout)
            return self._version

    @property
    def stage(self) -> Stage:
        return self._report.stage

    @property
    def message(self) -> str:
        return self._report.message

    def set_stage(self, stage: Stage, message: str = "") -> None:
        """Enter a stage. Failed and Draining stay: nothing that follows takes them back."""
        self._enter(stage, message)

    def move(self) -> None:
        """Something of the start got done."""
        self._update()

    def set_bucket(self, bucket: Bucket) -> None:
        with self._changed:
            self._buckets[(bucket.kind, bucket.size)] = bucket
        self._update()

    def set_cache(self, cache: Cache) -> None:
        self._update(cache=cache)

    @property
    def cache(self) -> Cache:
        return self._report.cache

    def set_check(self, check: Check) -> None:
        self._update(check=check)

    def set_ready(self) -> None:
        """The part of the warmup that readiness waits for is over."""
        ready = self.since_start()
        stages = ", ".join(f"{span.name} {span.seconds:.2f} s" for span in self._report.timeline)
        _log.info("ready %.2f s after the process started: %s", ready, stages)
        self._enter(Stage.SERVING, ready_seconds=ready)

    def fail(self, reason: str, message: str) -> None:
        """This engine cannot serve, or cannot any more."""
        _log.error("%s: %s", reason, message)
        self._update(
            fault=Fault(reason=reason, message=message), stage=Stage.FAILED, message=message
        )

    @contextmanager
    def span(self, name: str, *, start_seconds: float | None = None) -> Iterator[None]:
        """Put what happens inside on the timeline."""
        began = self.since_start() if start_seconds is None else start_seconds
        try:
            yield
        finally:
            span = Span(name=name, start_seconds=began, seconds=self.since_start() - began)
            with self._changed:
                spans = [*self._report.timeline, span]  # they overlap, and end in another order
                self._update(timeline=sorted(spans, key=lambda span: span.start_seconds))

    def since_start(self) -> float:
        """Seconds since the process started."""
        return time.time() - self._report.started_at

    def _enter(self, stage: Stage, message: str = "", **fields: object) -> None:
        kept = {Stage.FAILED} if stage is Stage.FAILED else {Stage.FAILED, Stage.DRAINING}
        with self._changed:
            enters = self._report.stage not in kept
            if enters:
                fields |= {"stage": stage, "message": message}
            if fields:
                self._update(**fields)
        if enters:
            _log.info("%s%s", stage, f": {message}" if message else "")

    def _update(self, **fields: object) -> None:
        with self._changed:
            self._report = msgspec.structs.replace(
                self._report, progress=self._report.progress + 1, **fields
            )
            self._version += 1
            self._changed.notify_all()


class Publisher(threading.Thread):
    """Sends a Reporter's report to the sidecar and takes its commands."""

    def __init__(self, reporter: Reporter, path: Path, *, on_drain: Callable[[], None]) -> None:
        super().__init__(name="report", daemon=True)
        self._reporter, self._path, self._on_drain = reporter, path, on_drain
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(SEND_SECONDS)
                    connection.connect(str(self._path))
                    self._serve(connection)
            except OSError as error:
                _log.debug("report socket %s: %s", self._path, error)
            self._stopping.wait(RECONNECT_SECONDS)

    def stop(self) -> None:
        """Send the last report and end the thread."""
        self._stopping.set()
        self._reporter.move()
        self.join(timeout=SEND_SECONDS + wire.HEARTBEAT_SECONDS)

    def _serve(self, connection: socket.socket) -> None:
        reader = threading.Thread(
            target=self._read_commands, args=(connection,), name="report-commands", daemon=True
        )
        reader.start()
        seen = -1
        while reader.is_alive():
            stopping = self._stopping.is_set()
            connection.sendall(wire.encode_line(self._reporter.snapshot()))
            if stopping:
                break
            seen = self._reporter.wait(seen, wire.HEARTBEAT_SECONDS)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        reader.join()

    def _read_commands(self, connection: socket.socket) -> None:
        """Until the sidecar closes the connection or says something that is not a command."""
        pending = b""
        while True:
            try:
                received = connection.recv(4096)
            except TimeoutError:
                continue
            except OSError:
                return
            pending += received
            if not received or len(pending) > wire.MAX_LINE_BYTES:
                return
            *lines, pending = pending.split(b"\n")
            for line in lines:
                try:
                    command = wire.decode_command(line)
                except (msgspec.DecodeError, msgspec.ValidationError) as error:
                    _log.warning("report socket: not a command: %s", error)
                    return
                if command.name is wire.CommandName.DRAIN:
                    self._on_drain()


def process_started_at() -> float:
    """When this process was started, seconds since the epoch: what the kernel says, so that the
    interpreter's own start counts."""
    try:
        # Field 22 of /proc/self/stat, counted after the parenthesised name, which may hold spaces.
        stat = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        age = uptime - int(stat[19]) / os.sysconf("SC_CLK_TCK")
        return time.time() - max(age, 0.0)
    except (OSError, ValueError, IndexError):
        return time.time()
