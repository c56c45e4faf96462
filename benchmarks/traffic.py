"""The same recorded traffic, served with graphs, while graphs are captured, and without.

    python -m benchmarks.traffic [--device cpu] [--shape 1b] [--traffic FILE] [--json FILE]

A file has one request a line, `{"at": seconds, "prompt": tokens, "output": tokens}`; each is sent
at its time (`--speed 2`: in half of it), whatever became of those before it. An engine with graphs
gets it `--rounds` times, after a round that is not counted, and then one with `--execution Eager`.
As often a new engine, with the same graphs and nothing stored, gets it as its first requests, and
captures the other decode buckets beside it (`lazy.`): what a capture makes wait is in its
latencies. Latencies are means and percentiles over all rounds, as the readers of the streams see
them; all else is the engine's own count. `short.` are requests for at most SHORT_TOKENS tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
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
DECODE_BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
RARE_BUCKETS = tuple(size for size in range(1, 64) if size not in DECODE_BUCKETS)
"""More than are captured in the time that captures may take beside one round."""
FLAGS = (
    "--max-model-length=2048",
    "--max-batch-size=64",
    "--max-batch-tokens=512",
    "--kv-cache-memory=2Gi",
    f"--decode-buckets={','.join(map(str, DECODE_BUCKETS))}",
    "--prefill-buckets=16,64,128,256,512",
)
CAPTURING = (
    f"--decode-buckets-lazy={','.join(map(str, RARE_BUCKETS))}",
    "--lazy-capture=true",
    "--cache-mode=Disabled",
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
    """Means and percentiles in milliseconds."""
    streams = [streamed for _, streamed in answers]
    values = {
        "ttft_ms": [streamed.first_token for streamed in streams],
        "itl_ms": [gap for streamed in streams for gap in streamed.gaps],
        "request_ms": [streamed.arrived[-1] - streamed.sent for streamed in streams],
    }
    seconds = {
        f"{name}.{figure}": value
        for name, all_ in values.items()
        for figure, value in (
            ("mean", statistics.mean(all_)),
            *((f"p{percent}", results.percentile(all_, percent)) for percent in PERCENTILES),
        )
    }
    return {name: round(1e3 * value, 3) for name, value in seconds.items()}


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
    """Raises RuntimeError if no capture fell into the rounds that are for that."""

    def flags(execution: Execution) -> tuple[str, ...]:
        return (*FLAGS, f"--device={arguments.device}", f"--execution={execution}")

    def serve(execution: Execution) -> list[Round]:
        with Engine(folder / "model", folder, flags(execution)) as engine:
            if execution is Execution.GRAPHS:
                engine.wait_until_stored()  # which takes time between steps
            replay(engine, requests, arguments.speed)
            return [replay(engine, requests, arguments.speed) for _ in range(arguments.rounds)]

    def serve_capturing() -> Round:
        with Engine(folder / "model", folder, (*flags(Execution.GRAPHS), *CAPTURING)) as engine:
            return replay(engine, requests, arguments.speed)

    rounds = {
        "graphs": serve(Execution.GRAPHS),
        "lazy": [serve_capturing() for _ in range(arguments.rounds)],
        "eager": serve(Execution.EAGER),
    }
    captured = sum(one.counts.captured for one in rounds["lazy"])
    if not captured:
        raise RuntimeError("no graph was captured beside the traffic")
    found = {
        f"{name}.{figure}": value
        for name, all_ in rounds.items()
        for figure, value in figures(all_, arguments.device).items()
    }
    return {**found, "lazy.captured": captured / arguments.rounds}


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
