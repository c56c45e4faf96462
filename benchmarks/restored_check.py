"""What stored answers save a start: the known-answer check of restored graphs, with and without.

    python -m benchmarks.restored_check --model DIR [--rounds 5] [--json FILE]

Every figure is a stage of a start of `warmgraph-engine`, from its own report. The two kinds of
start take turns on one cache entry and a copy of it that has no answers, and each figure is the
median of its rounds: on a busy machine only the ratio means anything.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import results
from warmgraph_api import wire
from warmgraph_api.report import Stage, WarmupReport
from warmgraph_api.resource import Device
from warmgraph_engine.store import locks, reading, writing
from warmgraph_engine.store.layout import Plan

FLAGS = (
    "--host=127.0.0.1",
    "--port=0",
    "--dtype=float32",
    "--max-model-length=2048",
    "--max-batch-size=16",
    "--max-batch-tokens=256",
    "--decode-buckets=1,2,4,8,16",
    "--prefill-buckets=64,256",
)
"""The buckets of examples/01-smollm2.yaml, all of them eager."""

PATIENCE_SECONDS = 300


@contextmanager
def engine(model: Path, cache: Path, mode: str) -> Iterator[Iterator[WarmupReport]]:
    """The reports of a running engine."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        path = Path(folder) / "report"
        server.bind(str(path))
        server.listen()
        server.settimeout(PATIENCE_SECONDS)
        command = [sys.executable, "-m", "warmgraph_engine.main", *FLAGS, f"--model={model}"]
        command += [f"--cache-directory={cache}", f"--cache-mode={mode}", f"--report-socket={path}"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            connection, _ = server.accept()
            connection.settimeout(PATIENCE_SECONDS)
            with connection, connection.makefile("rb") as lines:
                yield map(wire.decode_report, lines)
                process.terminate()


def stages(model: Path, cache: Path, check: str) -> dict[str, float]:
    """Milliseconds of each stage of a restored start, whose check must say this of itself."""
    with engine(model, cache, "ReadOnly") as reports:
        serving = next(report for report in reports if report.stage is Stage.SERVING)
        assert check in serving.check.message, serving.check.message
        return {span.name: 1e3 * span.seconds for span in serving.timeline}


def without_answers(cache: Path, copy: Path) -> None:
    """The entries of a cache in another, as they were before there were answers."""
    copy.mkdir()
    for entry in reading.entries(cache):
        stored = reading.read_entry(entry)
        images = [replace(i, answer=None) for i in reading.read_images(entry, stored.manifest)]
        with locks.writing(copy):
            writing.publish(copy, stored.key, images, Plan())


def measure(model: Path, rounds: int) -> dict[str, float]:
    figures: dict[str, list[float]] = {"by_answer.ms": [], "in_full.ms": []}
    with tempfile.TemporaryDirectory() as folder:
        cache, copy = Path(folder) / "cache", Path(folder) / "copy"
        with engine(model, cache, "ReadWrite") as reports:
            next(report for report in reports if report.cache.published)
        without_answers(cache, copy)
        for number in range(rounds):
            for name, of, check in (
                ("by_answer.ms", cache, "7 by stored answer"),
                ("in_full.ms", copy, "7 in full"),
            ):
                figures[name].append(stages(model, of, check)["Known-answer check"])
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    result = {name: round(statistics.median(values), 1) for name, values in figures.items()}
    result["ratio.by_answer_to_in_full"] = round(result["by_answer.ms"] / result["in_full.ms"], 2)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = measure(arguments.model, arguments.rounds)
    for name, figure in figures.items():
        print(f"{name:<32} {figure:>8}")
    if arguments.json is not None:
        results.write(arguments.json, figures, device=Device.CPU)


if __name__ == "__main__":
    main()
