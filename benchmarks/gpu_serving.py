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
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp

from benchmarks import checkpoints, results

SHAPES = ("1b", "8b")
STREAMS = (1, 8, 64)
TOKENS = 256
PORT = 8123
REQUEST = {"model": "m", "prompt": "hello", "temperature": 0, "ignore_eos": True}
FLAGS = (
    "--host=127.0.0.1",
    f"--port={PORT}",
    "--served-model-name=m",
    "--device=cuda",
    "--max-model-length=4096",
    "--max-batch-size=64",
    "--max-batch-tokens=512",
    "--kv-cache-memory=8Gi",
    "--decode-buckets=1,2,4,8,16,32,64",
    "--prefill-buckets=16,64,256,512",
)


class Engine:
    """A running engine."""

    def __init__(self, model: Path, work: Path) -> None:
        self._log = work / "engine.log"
        began = time.perf_counter()
        environment = {**os.environ, "TRITON_CACHE_DIR": str(work / "triton")}
        command = [sys.executable, "-m", "warmgraph_engine.main", *FLAGS]
        command += [f"--model={model}", f"--cache-directory={work / 'cache'}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log, env=environment)
        self._wait()
        self.first_token_seconds = time.perf_counter() - began

    def _wait(self) -> None:
        body = json.dumps({**REQUEST, "max_tokens": 1}).encode()
        while True:
            request = urllib.request.Request(
                f"http://127.0.0.1:{PORT}/v1/completions",
                body,
                {"content-type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (ours)
                    answer.read()
                return
            except (urllib.error.URLError, ConnectionError):
                if self._process.poll() is not None:
                    raise RuntimeError(self._log.read_text()) from None
                time.sleep(0.005)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


async def _stream(session: aiohttp.ClientSession, gaps: list[float]) -> None:
    body = {**REQUEST, "max_tokens": TOKENS, "stream": True}
    last = 0.0
    async with session.post(f"http://127.0.0.1:{PORT}/v1/completions", json=body) as answer:
        async for line in answer.content:
            if line.startswith(b"data: {"):
                now = time.perf_counter()
                if last:
                    gaps.append(now - last)
                last = now


async def _load(streams: int) -> tuple[float, float]:
    """(median gap between tokens in seconds, tokens per second)."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        gaps: list[float] = []
        began = time.perf_counter()
        await asyncio.gather(*(_stream(session, gaps) for _ in range(streams)))
        return statistics.median(gaps), streams * TOKENS / (time.perf_counter() - began)


def measure(
    name: str, folder: Path, *, rounds: int, starts: int
) -> tuple[dict[str, float], dict[str, float]]:
    model, work = folder / name, folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    engine = Engine(model, work)
    cold = {f"{name}.no_cache_s": round(engine.first_token_seconds, 2)}
    decode = {}
    for streams in STREAMS:
        runs = [asyncio.run(_load(streams)) for _ in range(rounds + 1)][1:]
        if streams == 1:
            decode[f"{name}.itl_ms"] = round(1e3 * statistics.median(gap for gap, _ in runs), 3)
        else:
            speed = statistics.median(speed for _, speed in runs)
            decode[f"{name}.tok_s_{streams}"] = round(speed)
    engine.stop()
    seconds = []
    for _ in range(starts):
        engine = Engine(model, work)
        seconds.append(engine.first_token_seconds)
        engine.stop()
    cold[f"{name}.first_token_s"] = round(statistics.median(seconds), 2)
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
        results.write(
            arguments.output / f"{name}.json",
            figures,
            hardware=results.gpu(),
            packages=("triton", "cuda-bindings"),
        )


if __name__ == "__main__":
    main()
