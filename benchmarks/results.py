"""The file that a benchmark leaves: its figures, and what they were measured on."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from warmgraph_api.resource import Device

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


def add_output(parser: argparse.ArgumentParser) -> None:
    """`--json FILE`, for `output`."""
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where the figures go, if not to this benchmark's file in docs/benchmarks",
    )


def output(arguments: argparse.Namespace, name: str) -> Path:
    """The file that was asked for; docs/benchmarks/NAME.json if none was."""
    asked: Path | None = arguments.json
    return asked or FOLDER / f"{name}.json"


def write(
    path: Path, figures: Mapping[str, float], *, device: Device, packages: Iterable[str] = ()
) -> None:
    """Writes the figures as JSON, and says where; `packages` are further ones whose version
    matters."""
    on_gpu = device is Device.CUDA
    computing = ("triton", "cuda-bindings") if on_gpu else ("torch",)
    result = {
        "hardware": _gpu() if on_gpu else _cpu(),
        "versions": {name: version(name) for name in ("warmgraph", *computing, *packages)},
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "figures": dict(figures),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(path, file=sys.stderr)


def percentile(values: Sequence[float], percent: int) -> float:
    """Of at least two values; beyond the largest of few ones, it is that one."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _gpu() -> str:
    """Name and driver of the GPUs that may be used, and the cores beside them."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = _output(command).splitlines()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(found) if visible is None else len(visible.split(","))
    many = f"{count} x " if count > 1 else ""
    return f"{many}{found[0]}, {len(os.sched_getaffinity(0))} cores"


def _cpu() -> str:
    """Instruction set and threads, as this process has set them."""
    import torch  # noqa: PLC0415 (the GPU's benchmarks do without)

    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()}, {capability}, {torch.get_num_threads()} threads"


def _commit() -> str:
    """With a + where the working tree has changes, other figures not among them; empty outside a
    checkout."""
    if shutil.which("git") is None:
        return ""
    git = ["git", "-C", str(FOLDER)]
    changed = _output([*git, "diff", "HEAD", "--name-only", "--", ":/", ":(exclude)."])
    return _output([*git, "describe", "--always"]) + ("+" if changed else "")


def _output(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip()
