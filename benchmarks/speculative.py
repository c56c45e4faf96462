"""Decode speed with drafts and without, with graphs and without.

    python -m benchmarks.speculative --model DIR [--json FILE]
    python -m benchmarks.speculative --device cuda [--shape 1b] [--json FILE]

Greedy decoding through the engine's loop, with up to 2, 4 and 8 drafts a step, of prompts whose
answers the drafts get right and of prompts whose answers they do not (prompts.py): chats for a
model of --model, else numbers for weights that recite. All give the same tokens with drafts as
without, or the benchmark fails. In each round they run one right after the other, and the ratio to
the run without is taken; figures are medians of the rounds. Writes speculative.json, on a GPU
speculative_gpu.json.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from benchmarks import checkpoints, prompts, results
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_api.resource import Device, Execution
from warmgraph_engine.backends.open import open_backend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.loop import EngineLoop, Output
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.models.config import parse_config
from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.scheduler.sequence import Sequence
from warmgraph_engine.tokenizer.text import TextModel

FILES = {Device.CPU: "speculative", Device.CUDA: "speculative_gpu"}
DTYPES = {Device.CPU: "float32", Device.CUDA: "bfloat16"}
TOKENS = {Device.CPU: 48, Device.CUDA: 128}
"""Of each sequence: a GPU would be done with few of them in no time."""
BATCHES = (1, 4)
DRAFTS = (2, 4, 8)
EXECUTIONS = {"graph": Execution.GRAPHS, "eager": Execution.EAGER}
BLOCK = 16

Workloads = Mapping[str, list[list[int]]]
"""By name: the prompts of a full batch, as tokens."""


@dataclass
class Outcome:
    """One run."""

    tokens: list[list[int]]
    seconds: float
    """From the first tokens, which the prefill brings, to the last."""
    drafted: float
    accepted: float

    @property
    def tokens_per_second(self) -> float:
        return sum(len(tokens) - 1 for tokens in self.tokens) / self.seconds


@dataclass
class Collected:
    """What a loop delivers; `deliver` runs in its thread."""

    left: int
    tokens: dict[int, list[int]] = field(default_factory=dict)
    began: float = 0.0
    ended: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    def deliver(self, outputs: list[Output]) -> None:
        self.ended = time.perf_counter()
        self.began = self.began or self.ended
        for output in outputs:
            if output.token is not None:
                self.tokens.setdefault(output.sequence.id, []).append(output.token.token_id)
            self.left -= output.finish is not None or output.error is not None
        if self.left == 0:
            self.done.set()


class Engine:
    """The model with every bucket captured, for each number of drafts."""

    def __init__(self, device: Device, folder: Path, workloads: Workloads, *, tokens: int) -> None:
        """For these prompts, and as many more tokens of each."""
        longest = max(len(prompt) for batch in workloads.values() for prompt in batch) + tokens
        settings = BackendSettings(
            dtype=DTYPES[device],
            block_size=BLOCK,
            kv_cache_bytes=512 << 20,
            max_model_length=-(-longest // BLOCK) * BLOCK,
            max_batch_size=max(BATCHES),
            # All prompts of a batch in one step.
            max_batch_tokens=max(sum(map(len, batch)) for batch in workloads.values()),
            max_tokens_per_sequence=1 + max(DRAFTS),
        )
        self._backend, _ = open_backend(device, Checkpoint(folder), settings, progress=lambda: None)
        self._backend.finish_loading()
        self._executors = {drafts: self._executor(drafts) for drafts in DRAFTS}

    def _executor(self, drafts: int) -> GraphExecutor:
        buckets = [
            Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
            for kind in (StepKind.DECODE, StepKind.VERIFY)
            for size in BATCHES
        ]
        graphs = GraphTable(self._backend, buckets, speculative_tokens=drafts)
        for bucket in graphs.ids():
            if not graphs.capture(bucket):
                raise SystemExit(graphs[bucket].bucket.reason)
        return GraphExecutor(self._backend, graphs, StepCounts())

    def run(
        self, batch: list[list[int]], tokens: int, execution: Execution, *, drafts: int
    ) -> Outcome:
        """With up to `drafts` drafts a step; without any if it is 0."""
        executor = self._executors[drafts or min(DRAFTS)]
        executor.set_execution(execution)
        registry = CollectorRegistry()
        faults: list[str] = []
        collected = Collected(left=len(batch))

        def fail(message: str) -> None:
            faults.append(message)
            collected.done.set()

        loop = EngineLoop(
            executor,
            self._backend.sampler,
            metrics=EngineMetrics(registry),
            on_fault=fail,
            speculative_tokens=drafts,
        )
        sequences = [
            Sequence(
                tokens=list(prompt),
                params=SamplingParams(max_tokens=tokens, temperature=0.0),
                random_key=(0, 0),
            )
            for prompt in batch
        ]
        loop.submit(sequences)
        loop.start(collected.deliver)
        collected.done.wait()
        seconds = collected.ended - collected.began
        loop.close()
        if faults:
            raise SystemExit(faults[0])

        def counted(name: str) -> float:
            return registry.get_sample_value(f"warmgraph_spec_decode_{name}_tokens_total") or 0.0

        return Outcome(
            tokens=[collected.tokens[sequence.id] for sequence in sequences],
            seconds=seconds,
            drafted=counted("draft"),
            accepted=counted("accepted"),
        )


def chats(folder: Path) -> Workloads:
    text = TextModel.load(folder, vocabulary=Checkpoint(folder).config.vocabulary)
    return {
        name: [text.encode_chat([{"role": "user", "content": prompt}]) for prompt in asked]
        for name, asked in prompts.CHATS.items()
    }


def measure(engine: Engine, workloads: Workloads, *, tokens: int, rounds: int) -> dict[str, float]:
    speeds: dict[str, list[float]] = {}
    figures: dict[str, float] = {}
    for round_ in range(rounds):
        for workload, size, name in itertools.product(workloads, BATCHES, EXECUTIONS):
            batch, execution = workloads[workload][:size], EXECUTIONS[name]
            plain = engine.run(batch, tokens, execution, drafts=0)
            slow = plain.tokens_per_second
            speeds.setdefault(f"{workload}.{name}_{size}.plain_tok_s", []).append(slow)
            for drafts in DRAFTS:
                drafting = engine.run(batch, tokens, execution, drafts=drafts)
                if plain.tokens != drafting.tokens:
                    raise SystemExit(
                        f"{workload}, batch {size}, {name}: {drafts} drafts changed the text"
                    )
                fast = drafting.tokens_per_second
                case = f"{workload}.k{drafts}.{name}_{size}"
                speeds.setdefault(f"{case}.drafts_tok_s", []).append(fast)
                speeds.setdefault(f"ratio.{case}", []).append(fast / slow)
                # Of the text alone: the same in every round, with graphs and without.
                counts = f"{workload}.k{drafts}.batch_{size}"
                figures[f"{counts}.drafted"] = drafting.drafted
                figures[f"{counts}.accepted"] = drafting.accepted
        print(f"round {round_ + 1} of {rounds}", file=sys.stderr, flush=True)
    return figures | {name: round(statistics.median(speeds[name]), 2) for name in sorted(speeds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CPU)
    parser.add_argument("--model", type=Path, help="without it, weights that recite")
    parser.add_argument("--shape", choices=("1b", "8b", "tiny"), default="1b", help="of those")
    parser.add_argument("--tokens", type=int, help="of each sequence: 48, on a GPU 128")
    parser.add_argument("--rounds", type=int, default=5)
    results.add_output(parser)
    arguments = parser.parse_args()
    device = arguments.device
    tokens = arguments.tokens or TOKENS[device]
    with tempfile.TemporaryDirectory() as written:
        if arguments.model is None:
            folder = Path(written)
            vocabulary = parse_config(dict(checkpoints.SHAPES[arguments.shape])).vocabulary
            successors = prompts.successors(vocabulary)
            checkpoints.write(folder, arguments.shape, successors=successors)
            workloads: Workloads = prompts.recited(max(BATCHES), tokens)
        else:
            folder, workloads = arguments.model, chats(arguments.model)
        engine = Engine(device, folder, workloads, tokens=tokens)
        figures = measure(engine, workloads, tokens=tokens, rounds=arguments.rounds)
    for name, figure in figures.items():
        print(f"{name:<36} {figure:>8}")
    results.write(results.output(arguments, FILES[device]), figures, device=device)


if __name__ == "__main__":
    main()
