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
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from warmgraph_engine.models.config import parse_config
from warmgraph_engine.models.weights import weight_specs

SHAPES: dict[str, dict[str, Any]] = {
    "1b": {
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
    },
    "8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "rope_theta": 500000.0,
    },
}
COMMON = {
    "architectures": ["LlamaForCausalLM"],
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
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


def write_model(folder: Path, shape: dict[str, Any]) -> None:
    """A checkpoint with random weights, and a tokenizer with a text for every token."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {**COMMON, **shape}
    (folder / "config.json").write_text(json.dumps(values))
    config = parse_config(values)
    heads = [config.heads * config.head_dim, *[config.kv_heads * config.head_dim] * 2]
    header: dict[str, Any] = {}
    end = 0
    for spec in weight_specs(config, ["lm_head.weight"]):
        rows = spec.shape[0]
        sizes = {1: [rows], 2: [rows // 2] * 2, 3: heads}[len(spec.parts)]
        for name, size in zip(spec.parts, sizes, strict=True):
            shape_ = [size, *spec.shape[1:]]
            begin, end = end, end + 2 * int(np.prod(shape_))
            header[name] = {"dtype": "BF16", "shape": shape_, "data_offsets": [begin, end]}
    # The same 64 MiB over and over, each matrix from another place: no two are equal, and 16 GB
    # are written in seconds.
    numbers = np.random.default_rng(0).standard_normal(32 << 20, dtype=np.float32) * 0.02
    block = (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    ones = np.full(1 << 14, 0x3F80, np.uint16).tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number, entry in enumerate(header.values()):
            left = entry["data_offsets"][1] - entry["data_offsets"][0]
            if len(entry["shape"]) == 1:
                file.write(ones[:left])
                continue
            start = 1_000_002 * number % len(block)
            while left:
                part = block[start : start + left]
                file.write(part)
                left -= len(part)
                start = 0
    write_tokenizer(folder, config.vocabulary)


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"w{number}x" for number in range(vocabulary - len(alphabet)))]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")


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


def _gpu() -> str:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument(
        "--folder", type=Path, required=True, help="for the models: 16 GB, best in memory"
    )
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=10)
    arguments = parser.parse_args()
    files: dict[str, dict[str, float]] = {"decode": {}, "coldstart": {}}
    for name in arguments.shapes:
        model = arguments.folder / name
        write_model(model, SHAPES[name])
        decode, cold = measure(
            name, arguments.folder, rounds=arguments.rounds, starts=arguments.starts
        )
        shutil.rmtree(model)
        files["decode"] |= decode
        files["coldstart"] |= cold
        print(json.dumps({**decode, **cold}), flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, figures in files.items():
        result = {
            "hardware": f"{_gpu()}, {len(os.sched_getaffinity(0))} cores",
            "versions": {
                package: version(package) for package in ("warmgraph", "triton", "cuda-bindings")
            },
            "date": datetime.now(UTC).date().isoformat(),
            "figures": figures,
        }
        path = arguments.output / f"{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
