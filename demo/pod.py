"""A model pod without Kubernetes: engine and sidecar as two processes on this machine.

    python -m demo.pod --model DIR --device cuda [--buckets few|many]

Shows what the graph cache does for a pod's start: nothing stored, everything stored, another model
revision, the old one again, a damaged entry. In each life the sidecar says when it is ready, the
first answer is timed, and 64 tokens at temperature 0 are compared with the first life's.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from demo.console import fail, say, step, table
from warmgraph_api.report import BucketState, CacheResult, PodState

ENGINE_PORT, SIDECAR_PORT = 8124, 8125
ENGINE, SIDECAR = (f"http://127.0.0.1:{port}" for port in (ENGINE_PORT, SIDECAR_PORT))
PATIENCE_SECONDS = 300
UNREACHABLE = (OSError, http.client.HTTPException)
"""What asking a process raises that is not there yet, or not any more."""

BUCKETS = {
    "few": ("--decode-buckets=1,2", "--prefill-buckets=16", "--max-batch-size=2"),
    "many": (
        "--decode-buckets=1,2,3,4,5,6,7,8,10,12,14,16,20,24,28,32,36,40,44,48,52,56,60,64",
        "--prefill-buckets=16,32,48,64,96,128,192,256,320,384,448,512",
        "--max-batch-size=64",
    ),
}
LIMITS = ("--max-model-length=256", "--max-batch-tokens=512", "--kv-cache-memory=1Gi")


class Pod:
    """The two processes of one life."""

    def __init__(self, arguments: argparse.Namespace, work: Path, revision: str) -> None:
        socket = f"--report-socket={work / 'report.sock'}"
        host = "--host=127.0.0.1"
        settle = "--drain-settle-seconds=0"  # no proxy has to follow
        self._processes: list[subprocess.Popen[bytes]] = []
        self._sidecar_flags = (host, socket, settle, f"--port={SIDECAR_PORT}")
        self._engine_flags = (
            *(host, socket, f"--port={ENGINE_PORT}", f"--model={arguments.model}"),
            *(f"--device={arguments.device}", f"--model-revision={revision}"),
            *("--served-model-name=m", f"--cache-directory={work / 'cache'}"),
            *(*LIMITS, *BUCKETS[arguments.buckets]),
        )

    def start(self) -> float:
        """Seconds from the engine's start until the sidecar says that the pod is ready."""
        # As in a pod: the sidecar is there before the engine is started.
        self._run("warmgraph_sidecar", self._sidecar_flags, until=f"{SIDECAR}/healthz")
        began = time.monotonic()
        self._run("warmgraph_engine", self._engine_flags, until=f"{SIDECAR}/readyz")
        return time.monotonic() - began

    def _run(self, module: str, flags: Sequence[str], *, until: str) -> None:
        command = [sys.executable, "-m", module, *flags]
        self._processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        _wait(until, self._processes[-1])

    def wait_until_stored(self) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not ((report := self.state().report) and report.cache.published):
            if time.monotonic() > end:
                fail(f"no graphs were stored within {PATIENCE_SECONDS} s")
            time.sleep(0.05)

    def state(self) -> PodState:
        return msgspec.json.decode(_get(f"{SIDECAR}/warmup"), type=PodState)

    def text(self) -> str:
        """64 tokens of an answer at temperature 0."""
        body = {"model": "m", "prompt": "hello", "max_tokens": 64, "temperature": 0}
        found: dict[str, Any] = json.loads(
            _get(f"{ENGINE}/v1/completions", body | {"ignore_eos": True})
        )
        text: str = found["choices"][0]["text"]
        return text

    def stop(self) -> None:
        """As the kubelet does it: drain, then SIGTERM, the sidecar last."""
        with contextlib.suppress(*UNREACHABLE):
            _get(f"{SIDECAR}/drain")
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _get(url: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    """Until it answers with 200."""
    end, why = time.monotonic() + PATIENCE_SECONDS, ""
    while time.monotonic() < end:
        try:
            _get(url)
        except urllib.error.HTTPError as error:
            why = error.read().decode()
        except UNREACHABLE as error:
            why = str(error)
        else:
            return
        if process.poll() is not None:
            fail(f"a process ended with status {process.returncode}; waiting for {url}")
        time.sleep(0.005)
    fail(f"{url} was not ready within {PATIENCE_SECONDS} s: {why}")


@contextlib.contextmanager
def life(arguments: argparse.Namespace, work: Path, revision: str) -> Iterator[Pod]:
    """A pod from its start until it has answered, told and stopped."""
    pod = Pod(arguments, work, revision)
    try:
        ready = pod.start()
        began = time.monotonic()
        yield pod
        answered = time.monotonic() - began
        report = pod.state().report
        assert report is not None
        states = [bucket.state for bucket in report.buckets]
        cache = report.cache
        field = f", field {cache.field}" if cache.field else ""
        say(f"ready after {ready:.2f} s; 64 tokens {answered:.2f} s later")
        say(f"graph cache: {cache.result}{field} ({cache.message})")
        say(
            f"graphs: {states.count(BucketState.RESTORED)} restored,"
            f" {states.count(BucketState.CAPTURED)} captured; check: {report.check.message}"
        )
        rows = [(s.name, f"{s.start_seconds:.2f}", f"{s.seconds:.2f}") for s in report.timeline]
        table(("stage", "at s", "took s"), rows)
        if cache.result is not CacheResult.HIT:
            pod.wait_until_stored()
    finally:
        pod.stop()


def damage(entry: Path) -> Path:
    """Flip a bit of an entry's largest file."""
    file = max((p for p in entry.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)
    return file.relative_to(entry)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--buckets", choices=tuple(BUCKETS), default="few")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and end both processes
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        os.environ["TRITON_CACHE_DIR"] = str(work / "triton")  # what is compiled is compiled here
        with step("A first start: nothing is stored"), life(arguments, work, "1") as pod:
            first = pod.text()

        def compare(pod: Pod) -> None:
            if pod.text() != first:
                fail("the answer differs from the first life's")
            say("the same 64 tokens as in the first life")

        with step("The same pod again"), life(arguments, work, "1") as pod:
            compare(pod)
        with step("Another model revision"), life(arguments, work, "2") as pod:
            compare(pod)  # under another name, the same weights
        with step("Back to the first revision"), life(arguments, work, "1") as pod:
            compare(pod)
        with step("A bit of every stored entry is flipped"):
            for manifest in (work / "cache").glob("*/manifest.json"):
                say(f"damaged: {damage(manifest.parent)}")
            with life(arguments, work, "1") as pod:
                compare(pod)


if __name__ == "__main__":
    main()
