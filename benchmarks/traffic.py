"""The same recorded traffic, served with graphs and without.

    python -m benchmarks.traffic [--device cpu] [--shape 1b] [--traffic FILE] [--json FILE]

A file has one request a line, `{"at": seconds, "prompt": tokens, "output": tokens}`; each is sent
at its time (`--speed 2`: in half of it), whatever became of those before it. An engine with graphs
gets it `--rounds` times, after a round that is not counted, and then one with `--execution Eager`.
Latencies are percentiles over all rounds, as the readers of the streams see them; all else is the
engine's own count. `short.` are requests for at most SHORT_TOKENS tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks import arrivals, checkpoints, results
from benchmarks.client import Streamed, session, stream
from benchmarks.served import Engine, Window
from warmgraph_api.resource import Device, Execution

FILES = {Device.CUDA: "traffic", Device.CPU: "traffic_cpu"}
"""A CPU's figures never replace a GPU's."""

SHORT_TOKENS = 64
PERCENTILES = (50, 95, 99)
FLAGS = (
    "--max-model-length=2048",
    "--max-batch-size=64",
    "--max-batch-tokens=512",
    "--kv-cache-memory=2Gi",
    "--decode-buckets=1,2,4,8,16,24,32,48,64",
    "--prefill-buckets=16,64,128,256,512",
)


@dataclass(frozen=True, slots=True)
class Request:
    at: float
    """Seconds from the beginning."""
    prompt: int
    output: int


@dataclass(slots=True)
class Round:
    """One replay of the traffic."""

    answers: list[tuple[Request, Streamed]]
    seconds: float
    """From the first request to the last token."""
    counts: Window


def read(path: Path) -> list[Request]:
    return [Request(**json.loads(line)) for line in path.read_text().splitlines()]


def replay(engine: Engine, requests: Sequence[Request], speed: float) -> Round:
    """Raises RuntimeError if any request gets another answer than its tokens."""
    before = engine.scrape()
    began = time.perf_counter()
    streams = asyncio.run(_replay(requests, speed))
    seconds = time.perf_counter() - began
    return Round(
        list(zip(requests, streams, strict=True)), seconds, Window(before, engine.scrape())
    )


async def _replay(requests: Sequence[Request], speed: float) -> list[Streamed]:
    async def one(client: aiohttp.ClientSession, number: int, request: Request) -> Streamed:
        await asyncio.sleep(request.at / speed)
        # No two prompts begin alike, and every vocabulary has these tokens.
        prompt = [5 + (31 * number + 7 * place) % 995 for place in range(request.prompt)]
        return await stream(client, request.output, prompt=prompt)

    async with session() as client:
        return await asyncio.gather(*(one(client, *numbered) for numbered in enumerate(requests)))


def latencies(answers: Sequence[tuple[Request, Streamed]]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    streams = [streamed for _, streamed in answers]
    values = {
        "ttft_ms": [streamed.first_token for streamed in streams],
        "itl_ms": [gap for streamed in streams for gap in streamed.gaps],
        "request_ms": [streamed.arrived[-1] - streamed.sent for streamed in streams],
    }
    return {
        f"{name}.p{percent}": round(1e3 * results.percentile(seconds, percent), 3)
        for name, seconds in values.items()
        for percent in PERCENTILES
    }


def figures(rounds: Sequence[Round], device: Device) -> dict[str, float]:
    """Of one engine."""

    def counted(name: str, **labels: str) -> float:
        return sum(one.counts.total(name, **labels) for one in rounds)

    answers = [answer for one in rounds for answer in one.answers]
    short = [answer for answer in answers if answer[0].output <= SHORT_TOKENS]
    seconds = sum(one.seconds for one in rounds)
    tokens = sum(request.output for request, _ in answers)
    padded = counted("warmgraph_step_tokens_total", padding="true")
    found = latencies(answers)
    found |= {f"short.{name}": figure for name, figure in latencies(short).items()}
    found |= {
        "tok_s": round(tokens / seconds, 1),
        "requests_s": round(len(answers) / seconds, 2),
        "cpu_ms_per_request": round(1e3 * counted("process_cpu_seconds_total") / len(answers), 2),
        "padded_share": round(padded / counted("warmgraph_step_tokens_total"), 4),
        "eager_share": round(
            counted("warmgraph_steps_total", path="eager") / counted("warmgraph_steps_total"), 4
        ),
    }
    if device is Device.CUDA:
        shares = [one.counts.gap_share for one in rounds]
        found["gap_share"] = round(sum(shares) / len(shares), 4)
    return found


def measure(
    folder: Path, requests: Sequence[Request], arguments: argparse.Namespace
) -> dict[str, float]:
    found = {}
    for execution in (Execution.GRAPHS, Execution.EAGER):
        flags = (*FLAGS, f"--device={arguments.device}", f"--execution={execution}")
        with Engine(folder / "model", folder, flags) as engine:
            if execution is Execution.GRAPHS:
                engine.wait_until_stored()  # which takes time between steps
            replay(engine, requests, arguments.speed)
            rounds = [replay(engine, requests, arguments.speed) for _ in range(arguments.rounds)]
        for name, figure in figures(rounds, arguments.device).items():
            found[f"{execution.lower()}.{name}"] = figure
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CUDA)
    parser.add_argument("--shape", choices=list(checkpoints.SHAPES), default="1b")
    parser.add_argument("--traffic", type=Path, default=arrivals.FILE)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    results.add_output(parser)
    arguments = parser.parse_args()
    requests = read(arguments.traffic)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.write(Path(folder) / "model", arguments.shape)
        found = measure(Path(folder), requests, arguments)
    for name, figure in found.items():
        print(f"{name:<32} {figure:>10}", file=sys.stderr)
    path = results.output(arguments, FILES[arguments.device])
    results.write(path, found, device=arguments.device)


if __name__ == "__main__":
    main()
