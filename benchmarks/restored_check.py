"""What stored answers save a start: the known-answer check of restored graphs, with and without.

    python -m benchmarks.restored_check --model DIR [--rounds 5] [--json FILE]

Every figure is a stage of a start of `warmgraph-engine`, from its own report. The two kinds of
start take turns on one cache entry and a copy of it that has no answers, and each figure is the
median of its rounds: on a busy machine only the ratio means anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks import results
from benchmarks.served import Engine
from warmgraph_api.resource import Device
from warmgraph_engine.store import locks, reading, writing
from warmgraph_engine.store.layout import Plan

FLAGS = (
    "--dtype=float32",
    "--max-model-length=2048",
    "--max-batch-size=16",
    "--max-batch-tokens=256",
    "--decode-buckets=1,2,4,8,16",
    "--prefill-buckets=64,256",
)
"""The buckets of examples/01-smollm2.yaml, all of them eager."""


def stages(model: Path, work: Path, check: str) -> dict[str, float]:
    """Milliseconds of each stage of a restored start, whose check must say this of itself."""
    with Engine(model, work, (*FLAGS, "--cache-mode=ReadOnly")) as engine:
        report = engine.report
    assert check in report.check.message, report.check.message
    return {span.name: 1e3 * span.seconds for span in report.timeline}


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
        answered, unanswered = Path(folder) / "answered", Path(folder) / "unanswered"
        answered.mkdir()
        unanswered.mkdir()
        with Engine(model, answered, FLAGS) as engine:
            engine.wait_until_stored()
        without_answers(answered / "cache", unanswered / "cache")
        with Engine(model, unanswered, FLAGS):
            pass  # compiles its bytecode, as the start that stored has done on the other side
        for number in range(rounds):
            for name, work, check in (
                ("by_answer.ms", answered, "7 by stored answer"),
                ("in_full.ms", unanswered, "7 in full"),
            ):
                figures[name].append(stages(model, work, check)["Known-answer check"])
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    result = {name: round(statistics.median(values), 1) for name, values in figures.items()}
    result["ratio.by_answer_to_in_full"] = round(result["by_answer.ms"] / result["in_full.ms"], 2)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    results.add_output(parser)
    arguments = parser.parse_args()
    figures = measure(arguments.model, arguments.rounds)
    for name, figure in figures.items():
        print(f"{name:<32} {figure:>8}")
    path = results.output(arguments, "restored_check")
    results.write(path, figures, device=Device.CPU)


if __name__ == "__main__":
    main()
