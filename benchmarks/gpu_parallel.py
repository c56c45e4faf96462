"""A model on one GPU and shared by several, through HTTP, in one run.

    python -m benchmarks.gpu_parallel --folder DIR [--shapes 8b] [--sizes 1 2] [--output DIR]

Writes parallel.json: for each number of GPUs the figures of gpu_serving.py (8b.2.itl_ms and so on:
time between tokens of one stream, tokens per second of 8 and 64, starts with and without stored
graphs), and what sharing gains (8b.2.gain: time between tokens on one GPU over that on two).
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from benchmarks import checkpoints, results
from benchmarks.gpu_serving import FLAGS, SHAPES, measure
from warmgraph_api.resource import Device


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["8b"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 2], metavar="N")
    parser.add_argument(
        "--folder", type=Path, required=True, help="for the models: 16 GB, best in memory"
    )
    parser.add_argument("--output", type=Path, default=results.FOLDER)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=3)
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for name in arguments.shapes:
        model = arguments.folder / name
        checkpoints.write(model, name)
        for size in arguments.sizes:
            decode, cold = measure(
                name,
                model,
                arguments.folder / "work",
                (*FLAGS, f"--tensor-parallel-size={size}"),
                rounds=arguments.rounds,
                first_starts=1,
                starts=arguments.starts,
            )
            for figure, value in {**decode, **cold}.items():
                figures[figure.replace(name, f"{name}.{size}", 1)] = value
            alone = figures.get(f"{name}.1.itl_ms")
            if size > 1 and alone is not None:
                figures[f"{name}.{size}.gain"] = round(alone / decode[f"{name}.itl_ms"], 2)
            print(json.dumps(figures), flush=True)
        shutil.rmtree(model)
    results.write(arguments.output / "parallel.json", figures, device=Device.CUDA)


if __name__ == "__main__":
    main()
