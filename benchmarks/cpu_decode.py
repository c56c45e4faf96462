"""Decode speed on this machine's CPU, beside transformers with the same weights and type.

    python -m benchmarks.cpu_decode --model DIR [--json FILE]

Figures are ratios within one run: two machines, or one that is busy, give other tokens per second
and about the same ratios. The candidates take turns, and each figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the engine sets it

import torch
import transformers

from benchmarks import results
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_api.resource import Device, Execution
from warmgraph_engine.backends.cpu.backend import CpuBackend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.step import Step, StepRow

PROMPT = list(range(1000, 1016))
BATCHES = (1, 8)


class Ours:
    """Decodes through the executor, as the engine's loop does."""

    def __init__(self, folder: Path, tokens: int) -> None:
        self._blocks = -(-(len(PROMPT) + tokens) // 16)
        settings = BackendSettings(
            dtype="float32",
            block_size=16,
            kv_cache_bytes=256 << 20,
            max_model_length=16 * self._blocks,
            max_batch_size=max(BATCHES),
            max_batch_tokens=len(PROMPT),
        )
        backend = CpuBackend(Checkpoint(folder), settings)
        buckets = [Bucket(kind=StepKind.DECODE, size=n, mode=BucketMode.EAGER) for n in BATCHES]
        graphs = GraphTable(backend, buckets)
        for bucket in graphs.ids():
            graphs.capture(bucket)
        self._executor = GraphExecutor(backend, graphs, StepCounts())

    def seconds(self, batch: int, tokens: int, execution: Execution) -> float:
        """Time to decode `tokens` tokens of each of `batch` sequences, greedily."""
        self._executor.set_execution(execution)
        tables = [
            BlockTable(1 + i * self._blocks + j for j in range(self._blocks)) for i in range(batch)
        ]
        last = []
        for table in tables:
            row = StepRow(token_ids=PROMPT, start_position=0, block_table=table, logit_rows=1)
            result = self._executor.execute(Step(kind=StepKind.PREFILL, rows=[row]))
            last.append(int(result.logits[0].argmax()))
        began = time.perf_counter()
        for position in range(len(PROMPT), len(PROMPT) + tokens):
            rows = [
                StepRow(
                    token_ids=[token],
                    start_position=position,
                    block_table=table,
                    logit_rows=1,
                )
                for token, table in zip(last, tables, strict=True)
            ]
            result = self._executor.execute(Step(kind=StepKind.DECODE, rows=rows))
            last = [int(token) for token in result.logits.argmax(axis=1)]
        return time.perf_counter() - began


class Theirs:
    """transformers' generate; its prefill is measured apart and taken off."""

    def __init__(self, folder: Path) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model.generation_config.eos_token_id = None

    def seconds(self, tokens: int) -> float:
        def generate(count: int) -> float:
            began = time.perf_counter()
            self._model.generate(
                torch.tensor([PROMPT]),
                max_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
            return time.perf_counter() - began

        return generate(tokens + 1) - generate(1)


def measure(folder: Path, *, tokens: int, rounds: int) -> dict[str, float]:
    ours, theirs = Ours(folder, tokens), Theirs(folder)
    candidates: dict[str, tuple[int, Callable[[], float]]] = {
        "transformers.tok_s_1": (1, lambda: theirs.seconds(tokens)),
    }
    for batch in BATCHES:
        for name, execution in (("graph", Execution.GRAPHS), ("eager", Execution.EAGER)):
            candidates[f"{name}.tok_s_{batch}"] = (
                batch,
                partial(ours.seconds, batch, tokens, execution),
            )
    speeds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_ in range(rounds):
        for name, (batch, seconds) in candidates.items():
            speeds[name].append(batch * tokens / seconds())
        print(f"round {round_ + 1} of {rounds}", file=sys.stderr, flush=True)
    figures = {name: round(statistics.median(values), 2) for name, values in speeds.items()}
    figures["ratio.graph_1_to_transformers"] = round(
        figures["graph.tok_s_1"] / figures["transformers.tok_s_1"], 2
    )
    figures["ratio.graph_8_to_graph_1"] = round(
        figures["graph.tok_s_8"] / figures["graph.tok_s_1"], 2
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    results.add_output(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with torch.inference_mode():
        figures = measure(arguments.model, tokens=arguments.tokens, rounds=arguments.rounds)
    for name, figure in figures.items():
        print(f"{name:<32} {figure:>8}")
    path = results.output(arguments, "cpu_decode")
    results.write(path, figures, device=Device.CPU, packages=("transformers",))


if __name__ == "__main__":
    main()
