"""Streaming and start-up of the engine on a GPU, through HTTP, with random weights of known shapes.

    python -m benchmarks.gpu_serving --folder DIR [--shapes 1b 8b] [--output DIR]

Writes decode.json and coldstart.json. For each shape: a start with nothing stored (also no compiled
kernels), then streams of 256 tokens, temperature 0, prompt of a few tokens, at 1, 8 and 64 at once;
then starts that find their graphs stored. A start is timed from exec to the answer of a request
that was sent again and again from the beginning; the page cache is warm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks import checkpoints, results
from benchmarks.served import Engine, load
from warmgraph_api.resource import Device

SHAPES = ("1b", "8b")
STREAMS = (1, 8, 64)
TOKENS = 256
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
    name: str, folder: Path, *, rounds: int, starts: int, flags: Sequence[str] = FLAGS
) -> tuple[dict[str, float], dict[str, float]]:
    """Figures of decoding, and of start-up, of the model in folder/name."""
    model, work = folder / name, folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with Engine(model, work, flags) as engine:
        cold = {f"{name}.no_cache_s": round(engine.first_token_seconds, 2)}
        decode = {}
        for streams in STREAMS:
            runs = [asyncio.run(load(streams, TOKENS)) for _ in range(rounds + 1)][1:]
            if streams == 1:
                gap = statistics.median(gap for gaps, _ in runs for gap in gaps)
                decode[f"{name}.itl_ms"] = round(1e3 * gap, 3)
            else:
                speed = statistics.median(speed for _, speed in runs)
                decode[f"{name}.tok_s_{streams}"] = round(speed)
        engine.wait_until_stored()
    first_token, graphs = [], []
    for _ in range(starts):
        with Engine(model, work, flags) as engine:
            first_token.append(engine.first_token_seconds)
            timeline = engine.report.timeline
            graphs += [span.seconds for span in timeline if span.name == "Restore graphs"]
    print(" ".join(f"{span.name} {span.seconds:.2f} s" for span in timeline), flush=True)
    cold[f"{name}.first_token_s"] = round(statistics.median(first_token), 2)
    cold[f"{name}.graphs_s"] = round(statistics.median(graphs), 2)
    entry = sum(path.stat().st_size for path in (work / "cache").rglob("*") if path.is_file())
    cold[f"{name}.entry_mb"] = round(entry / 1e6, 2)
    return decode, cold


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument(
        "--folder", type=Path, required=True, help="for the models: 16 GB, best in memory"
    )
    parser.add_argument("--output", type=Path, default=results.FOLDER)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=10)
    arguments = parser.parse_args()
    files: dict[str, dict[str, float]] = {"decode": {}, "coldstart": {}}
    for name in arguments.shapes:
        model = arguments.folder / name
        checkpoints.write(model, name)
        decode, cold = measure(
            name, arguments.folder, rounds=arguments.rounds, starts=arguments.starts
        )
        shutil.rmtree(model)
        files["decode"] |= decode
        files["coldstart"] |= cold
        print(json.dumps({**decode, **cold}), flush=True)
    for name, figures in files.items():
        results.write(arguments.output / f"{name}.json", figures, device=Device.CUDA)


if __name__ == "__main__":
    main()
