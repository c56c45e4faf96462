"""Weights from the page cache to a GPU, and nothing beside it.

    python -m benchmarks.weight_loading --folder DIR [--shapes 1b 8b] [--json FILE]

`SHAPE.gb_s` is the checkpoint's size over the time from the first read to the last byte's arrival,
the best of the rounds: the first may read from a disk.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from benchmarks import checkpoints, results
from warmgraph_api.resource import Device
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint

SETTINGS = BackendSettings(
    dtype="bfloat16",
    block_size=16,
    kv_cache_bytes=1 << 30,
    max_model_length=1024,
    max_batch_size=8,
    max_batch_tokens=64,
)


def gigabytes_per_second(model: Path, rounds: int) -> float:
    best = 0.0
    for _ in range(rounds):
        checkpoint = Checkpoint(model)
        backend = CudaBackend(checkpoint, SETTINGS)
        backend.finish_loading()
        best = max(best, checkpoint.bytes / 1e9 / backend.loading_seconds)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shapes", nargs="+", choices=("1b", "8b"), default=["1b", "8b"])
    parser.add_argument("--folder", type=Path, required=True, help="16 GB, best in memory")
    parser.add_argument("--rounds", type=int, default=3)
    results.add_output(parser)
    arguments = parser.parse_args()
    figures = {}
    for name in arguments.shapes:
        model = arguments.folder / name
        checkpoints.write(model, name)
        figures[f"{name}.gb_s"] = round(gigabytes_per_second(model, arguments.rounds), 1)
        shutil.rmtree(model)
        print(f"{name}  {figures[f'{name}.gb_s']} GB/s", file=sys.stderr, flush=True)
    path = results.output(arguments, "loading")
    results.write(path, figures, device=Device.CUDA)


if __name__ == "__main__":
    main()
