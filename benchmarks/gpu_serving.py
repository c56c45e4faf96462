"""Streaming and start-up of the engine on a GPU, through HTTP, with random weights of known shapes.

    python -m benchmarks.gpu_serving --folder DIR [--shapes 1b 8b] [--quantization fp8]
        [--output DIR]

Writes decode.json and coldstart.json; with a quantization decode_fp8.json and coldstart_fp8.json,
in which figures are named like 8b_fp8.itl_ms. For each shape: first starts, with nothing stored
(also no compiled kernels and no bytecode), that store their graphs (`no_cache_s`) and that have no
graph cache (`no_store_s`), the best of each, since the first of all reads its programs from a disk.
In the last that stores, streams of 256 tokens, temperature 0, prompt of a few tokens, at 1, 8 and
64 at once; then starts that find their graphs stored, and in one of them one more such stream
(`restored_itl_ms`; over `itl_ms` of the start that captured, `restored_itl_ratio`). A start is
timed from exec to the answer of a request that was sent again and again from the beginning; the
page cache is warm. By default both shapes take about two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import checkpoints, results
from benchmarks.client import load
from benchmarks.served import Engine
from warmgraph_api.resource import Device, Quantization

SHAPES = ("1b", "8b")
STREAMS = (1, 8, 64)
TOKENS = 256
WITHOUT_STORE = "--cache-mode=Disabled"
FLAGS = (
    "--device=cuda",
    "--max-model-length=4096",
    "--max-batch-size=64",
    "--max-batch-tokens=512",
    "--kv-cache-memory=8Gi",
    "--decode-buckets=1,2,3,4,5,6,7,8,10,12,14,16,20,24,28,32,36,40,44,48,52,56,60,64",
    "--prefill-buckets=16,32,48,64,96,128,192,256,320,384,448,512",
)


def measure(
    name: str,
    model: Path,
    work: Path,
    flags: Sequence[str],
    *,
    rounds: int,
    first_starts: int,
    starts: int,
) -> tuple[dict[str, float], dict[str, float]]:
    """(figures of decode.json, figures of coldstart.json), each under `name`; `work` is emptied.
    Of both kinds of first starts there are so many, of restored ones `starts`."""
    storing = [_first_start(model, work, flags) for _ in range(first_starts - 1)]
    alone = [_first_start(model, work, (*flags, WITHOUT_STORE)) for _ in range(first_starts)]
    _empty(work)
    with Engine(model, work, flags) as engine:
        storing.append(engine.first_token_seconds)
        engine.wait_until_stored()
        decode, captured_gap = _streams(rounds)
    cold = {
        "no_cache_s": round(min(storing), 2),
        "no_store_s": round(min(alone), 2),
        **_restored_starts(model, work, flags, starts, captured_gap),
    }
    entry = sum(path.stat().st_size for path in (work / "cache").rglob("*") if path.is_file())
    cold["entry_mb"] = round(entry / 1e6, 2)
    return _named(name, decode), _named(name, cold)


def _named(name: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {f"{name}.{figure}": value for figure, value in figures.items()}


def _empty(work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)


def _first_start(model: Path, work: Path, flags: Sequence[str]) -> float:
    """Its seconds."""
    _empty(work)
    with Engine(model, work, flags) as engine:
        return engine.first_token_seconds


def _streams(rounds: int) -> tuple[dict[str, float], float]:
    """(figures of decode.json, seconds between two tokens of one stream)."""
    decode, gap = {}, 0.0
    for streams in STREAMS:
        runs = [asyncio.run(load(streams, TOKENS)) for _ in range(rounds + 1)][1:]
        if streams == 1:
            gap = statistics.median(gap for gaps, _ in runs for gap in gaps)
            decode["itl_ms"] = round(1e3 * gap, 3)
        else:
            speed = statistics.median(speed for _, speed in runs)
            decode[f"tok_s_{streams}"] = round(speed)
    return decode, gap


def _restored_starts(
    model: Path, work: Path, flags: Sequence[str], starts: int, captured_gap: float
) -> dict[str, float]:
    first_token: list[float] = []
    memory: list[float] = []
    stages, driver = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for number in range(starts):
        with Engine(model, work, flags) as engine:
            first_token.append(engine.first_token_seconds)
            for span in engine.report.timeline:
                slug = span.name.lower().replace(" ", "_").replace("-", "_")
                stages[f"{slug}_at"].append(span.start_seconds)
                stages[f"{slug}_s"].append(span.seconds)
            metrics = engine.scrape()
            memory.append(metrics.total("warmgraph_graph_bytes") / 2**20)
            for part in ("instantiate", "upload"):
                driver[part].append(metrics.total(f"warmgraph_graph_{part}_seconds"))
            if number == starts - 1:
                gap = statistics.median(asyncio.run(load(1, TOKENS))[0])
    return {
        "first_token_s": round(statistics.median(first_token), 2),
        "restored_itl_ms": round(1e3 * gap, 3),
        "restored_itl_ratio": round(gap / captured_gap, 3),
        "graphs_s": round(statistics.median(stages["restore_graphs_s"]), 2),
        "graphs_mib": round(statistics.median(memory), 1),
        **{f"graphs_{part}_s": round(statistics.median(all_), 3) for part, all_ in driver.items()},
        **{f"stages.{name}": round(statistics.median(all_), 2) for name, all_ in stages.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument(
        "--folder", type=Path, required=True, help="for the models: 16 GB, best in memory"
    )
    parser.add_argument(
        "--quantization",
        choices=[value.value for value in Quantization],
        default=Quantization.NONE.value,
    )
    parser.add_argument("--output", type=Path, default=results.FOLDER)
    parser.add_argument("--rounds", type=int, default=2, help="of streams, and one more to warm up")
    parser.add_argument(
        "--first-starts", type=int, default=2, help="with a graph cache, and without"
    )
    parser.add_argument("--starts", type=int, default=10, help="that find their graphs stored")
    arguments = parser.parse_args()
    quantization = Quantization(arguments.quantization)
    suffix = "" if quantization is Quantization.NONE else f"_{quantization}"
    files: dict[str, dict[str, float]] = {"decode": {}, "coldstart": {}}
    for name in arguments.shapes:
        model = arguments.folder / name
        checkpoints.write(model, name)
        decode, cold = measure(
            f"{name}{suffix}",
            model,
            arguments.folder / "work",
            (*FLAGS, f"--quantization={quantization}"),
            rounds=arguments.rounds,
            first_starts=arguments.first_starts,
            starts=arguments.starts,
        )
        shutil.rmtree(model)
        files["decode"] |= decode
        files["coldstart"] |= cold
        print(json.dumps({**decode, **cold}), flush=True)
    for name, figures in files.items():
        results.write(arguments.output / f"{name}{suffix}.json", figures, device=Device.CUDA)


if __name__ == "__main__":
    main()
