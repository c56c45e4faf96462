"""Decode speed with drafts and without, with graphs and without, on this machine's CPU.

    python -m benchmarks.speculative --model DIR [--json FILE]

Greedy decoding through the engine's loop, of texts that repeat their prompt and of texts that do
not. Both give the same tokens with drafts as without, or the benchmark fails. In each round the two
run one right after the other, and their ratio is taken; figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the engine sets it

import torch
from prometheus_client import CollectorRegistry

from benchmarks import results
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_api.resource import Device, Execution
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.loop import EngineLoop, Output
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.scheduler.sequence import Sequence
from warmgraph_engine.tokenizer.text import TextModel

BATCHES = (1, 4)
EXECUTIONS = {"graph": Execution.GRAPHS, "eager": Execution.EAGER}

RIVER = """The river rises in the hills north of the town, flows past the old mill and the market
square, and reaches the sea near the lighthouse. In spring the meadows beside it are under water,
and the road to the harbour is closed until the end of April."""
MEETING = """The meeting was moved from Monday to Thursday because two of the five members were
ill. Anna will book the large room on the second floor, Peter brings the figures of the last
quarter, and everybody reads the draft of the contract before lunch on Wednesday."""
RECIPE = """Mix the flour with the sugar and a little salt, add the eggs one after the other, and
stir until the dough is smooth. Let it rest for half an hour in a cool place, roll it out on the
table, and bake it for twenty minutes at two hundred degrees."""
CODE = """def total(prices, discount):
    result = 0.0
    for price in prices:
        if price > 100.0:
            price = price * (1.0 - discount)
        result = result + price
    return result"""

WORKLOADS = {
    "repeats": [f"Repeat this word for word:\n\n{t}" for t in (RIVER, MEETING, RECIPE, CODE)],
    "new": [
        "Explain to a child why the sky is blue.",
        "Write a short story about a dog who finds a key.",
        "Why did the Roman Empire fall?",
        "Give me advice for a job interview.",
    ],
}


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
    """The model with every bucket captured."""

    def __init__(self, folder: Path, drafts: int) -> None:
        self._drafts = drafts
        settings = BackendSettings(
            dtype="float32",
            block_size=16,
            kv_cache_bytes=256 << 20,
            max_model_length=512,
            max_batch_size=max(BATCHES),
            max_batch_tokens=512,  # all prompts of a batch in one step
            max_tokens_per_sequence=1 + drafts,
        )
        backend = CpuBackend(Checkpoint(folder), settings)
        self._text = TextModel.load(folder, vocabulary=backend.limits.vocabulary)
        buckets = [
            Bucket(kind=kind, size=size, mode=BucketMode.EAGER)
            for kind in (StepKind.DECODE, StepKind.VERIFY)
            for size in BATCHES
        ]
        graphs = GraphTable(backend, buckets, speculative_tokens=drafts)
        for bucket in graphs.ids():
            graphs.capture(bucket)
        self._executor = GraphExecutor(backend, graphs, StepCounts())

    def run(
        self, prompts: list[str], tokens: int, execution: Execution, *, speculate: bool
    ) -> Outcome:
        self._executor.set_execution(execution)
        registry = CollectorRegistry()
        faults: list[str] = []
        loop = EngineLoop(
            self._executor,
            CpuSampler(vocabulary=self._executor.limits.vocabulary),
            metrics=EngineMetrics(registry),
            on_fault=faults.append,
            speculative_tokens=self._drafts if speculate else 0,
        )
        sequences = [
            Sequence(
                tokens=self._text.encode_chat([{"role": "user", "content": prompt}]),
                params=SamplingParams(max_tokens=tokens, temperature=0.0),
                random_key=(0, 0),
            )
            for prompt in prompts
        ]
        collected = Collected(left=len(sequences))
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


def measure(folder: Path, *, drafts: int, tokens: int, rounds: int) -> dict[str, float]:
    engine = Engine(folder, drafts)
    speeds: dict[str, list[float]] = {}
    figures: dict[str, float] = {}
    for round_ in range(rounds):
        for workload, batch, name in itertools.product(WORKLOADS, BATCHES, EXECUTIONS):
            prompts = WORKLOADS[workload][:batch]
            plain, drafting = (
                engine.run(prompts, tokens, EXECUTIONS[name], speculate=speculate)
                for speculate in (False, True)
            )
            if plain.tokens != drafting.tokens:
                raise SystemExit(f"{workload}, batch {batch}, {name}: drafts changed the text")
            case = f"{workload}.{name}_{batch}"
            slow, fast = plain.tokens_per_second, drafting.tokens_per_second
            for figure, value in (
                (f"{case}.plain_tok_s", slow),
                (f"{case}.drafts_tok_s", fast),
                (f"ratio.{case}", fast / slow),
            ):
                speeds.setdefault(figure, []).append(value)
            # Of the text alone: the same in every round, with graphs and without.
            figures[f"{workload}.batch_{batch}.drafted"] = drafting.drafted
            figures[f"{workload}.batch_{batch}.accepted"] = drafting.accepted
        print(f"round {round_ + 1} of {rounds}", file=sys.stderr, flush=True)
    return figures | {name: round(statistics.median(speeds[name]), 2) for name in sorted(speeds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--drafts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    results.add_output(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures = measure(
        arguments.model,
        drafts=arguments.drafts,
        tokens=arguments.tokens,
        rounds=arguments.rounds,
    )
    for name, figure in figures.items():
        print(f"{name:<32} {figure:>8}")
    path = results.output(arguments, "speculative")
    results.write(path, figures, device=Device.CPU)


if __name__ == "__main__":
    main()
