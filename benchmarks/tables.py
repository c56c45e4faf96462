"""What docs/benchmarks/README.md shows of each JSON file.

A cell is text with figures in braces, `{NAME:FORMAT}` or `{NAME / NAME:FORMAT}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    file: str
    """Its name, without a suffix."""
    title: str
    groups: Mapping[str, str]
    """By their label: what stands for {} in the series' names."""
    series: Mapping[str, str]
    """By their label: the name of a figure in each group."""
    spec: str
    """Format of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One file's part of the page."""

    command: str
    """What makes it."""
    table: Table
    plots: Sequence[Plot] = ()


def _row(label: str, pattern: str, *keys: object) -> tuple[str, ...]:
    """Cells that differ in what stands for @."""
    return (label, *(pattern.replace("@", str(key)) for key in keys))


def _rows(patterns: Mapping[str, str], *keys: object) -> list[tuple[str, ...]]:
    return [_row(label, pattern, *keys) for label, pattern in patterns.items()]


_SERVED = {
    "between two tokens, one stream": "{@.itl_ms:.3f} ms",
    "8 streams": "{@.tok_s_8:,.0f} tok/s",
    "64 streams": "{@.tok_s_64:,.0f} tok/s",
}
_STARTED = {
    "exec to first answer, nothing stored or compiled": "{@.no_cache_s:.1f} s",
    "exec to first answer, graphs stored": "{@.first_token_s:.2f} s",
}


_SERVINGS = ("graphs", "lazy", "eager")
_MODES = ("full", "piecewise", "eager")
_BATCHES = (1, 8, 64)
_PERCENTILES = {f"p{percent}": f"p{percent}" for percent in (50, 95, 99)}
_LATENCIES = {
    "to the first token": "ttft_ms",
    "between two events": "itl_ms",
    "whole request": "request_ms",
}
_INPUTS = [(batch, length) for batch in (1, 2, 4) for length in (64, 256, 1024)]


def _serving(quantization: str) -> tuple[str, dict[str, str]]:
    """The command, and by each shape's title what its figures begin with."""
    command = "gpu_serving --folder DIR"
    if not quantization:
        return command, {"1.1B": "1b", "8B": "8b"}
    return (
        f"{command} --shapes 8b --quantization {quantization}",
        {"8B": f"8b_{quantization}"},
    )


def _decode(quantization: str) -> Shown:
    command, shapes = _serving(quantization)
    return Shown(
        command=command,
        table=Table(("", *shapes), _rows(_SERVED, *shapes.values())),
    )


def _stage(name: str) -> str:
    return f"{{@.stages.{name}_at:.2f}} + {{@.stages.{name}_s:.2f}} s"


_STAGES = {
    "start process, until the server listens: at + for": _stage("start_process"),
    "load model, until its weights are on their way": _stage("load_model"),
    "restore graphs": _stage("restore_graphs"),
    "wait for weights": _stage("wait_for_weights"),
    "known-answer check": _stage("known_answer_check"),
}
"""Of a restored start; they overlap."""


_FLOORS = {
    "start process, until the server listens: at + for": "0.2 s: the CUDA context",
    "load model, until its weights are on their way": "one interpreter's time",
    "restore graphs": "0.01 s at 1.1B: the driver's instantiation and upload",
    "wait for weights": "0.04, 0.29 s from pinned memory, beside the two stages before",
    "known-answer check": "0.01, 0.09 s: the decode graphs read the weights",
}
"""Of each stage on an H200, with weights in bf16."""


def _coldstart(quantization: str) -> Shown:
    command, shapes = _serving(quantization)
    rows = _rows(
        {
            **_STARTED,
            "of that: to find, read and rebuild 36 graphs": "{@.graphs_s:.2f} s",
            "of that the driver's, to instantiate and upload them": (
                "{@.graphs_instantiate_s:.2f} + {@.graphs_upload_s:.2f} s"
            ),
            "GPU memory that the driver took for them": "{@.graphs_mib:.0f} MiB",
            "stored graphs and their kernels": "{@.entry_mb:.1f} MB",
            **_STAGES,
            "between two tokens, one stream, graphs restored": "{@.restored_itl_ms:.3f} ms",
            "that ÷ between two tokens in the start that captured": "{@.restored_itl_ratio:.3f}",
            "exec to first answer, nothing stored or compiled, no graph cache": (
                "{@.no_store_s:.1f} s"
            ),
            "first start that stores its graphs ÷ that": "{@.no_cache_s / @.no_store_s:.2f}",
        },
        *shapes.values(),
    )
    header: tuple[str, ...] = ("", *shapes)
    if not quantization:
        header, rows = (*header, "at least"), [(*row, _FLOORS.get(row[0], "")) for row in rows]
    return Shown(command=command, table=Table(header, rows))


def _drafts(options: str, texts: Mapping[str, str]) -> Shown:
    rows = [
        (
            f"{label}, {sequences}",
            f"{drafts}",
            f"{{ratio.{name}.k{drafts}.graph_{batch}:.2f}}",
            f"{{ratio.{name}.k{drafts}.eager_{batch}:.2f}}",
            "{@.accepted:.0f} of {@.drafted:.0f}".replace("@", f"{name}.k{drafts}.batch_{batch}"),
        )
        for name, label in texts.items()
        for batch, sequences in ((1, "1 sequence"), (4, "4 sequences"))
        for drafts in (2, 4, 8)
    ]
    first = "tokens per second with drafts ÷ without"
    header = (first, "drafts in a step", "with graphs", "eagerly", "drafts kept")
    return Shown(command=f"speculative {options}", table=Table(header, rows))


SHOWN: Mapping[str, Shown] = {
    "decode": _decode(""),
    "coldstart": _coldstart(""),
    "decode_fp8": _decode("fp8"),
    "coldstart_fp8": _coldstart("fp8"),
    "loading": Shown(
        command="weight_loading --folder DIR",
        table=Table(
            ("", "1.1B", "8B"),
            [_row("weights from the page cache to the GPU", "{@.gb_s:.1f} GB/s", "1b", "8b")],
        ),
    ),
    "parallel": Shown(
        command="gpu_parallel --folder DIR --sizes 2",
        table=Table(("", "8B on 2 GPUs"), _rows({**_SERVED, **_STARTED}, "8b.2")),
    ),
    "idle": Shown(
        command="idle_gap",
        table=Table(
            ("", "1 stream", "64 streams"),
            [
                _row("GPU's time between steps ÷ all", "{gap_share.@:.1%}", 1, 64),
                _row("a step and the gap before it", "{step_ms.@:.3f} ms", 1, 64),
            ],
        ),
    ),
    "lazy": Shown(
        command="lazy_capture",
        table=Table(
            ("between two tokens", "steady", "beside captures"),
            [
                ("99th percentile", "{p99_ms:.2f} ms", "{p99_lazy_ms:.2f} ms"),
                ("ratio of the two", "", "{p99_ratio:.2f}"),
                ("longest", "", "{max_lazy_ms:.1f} ms"),
                ("graphs captured", "", "{captured_beside:.0f}"),
            ],
        ),
    ),
    "traffic": Shown(
        command="traffic",
        table=Table(
            ("", "with graphs", "beside captures", "eagerly"),
            [
                _row(label, pattern, *_SERVINGS)
                for label, pattern in (
                    *(
                        (f"{label}, {figure}", f"{{@.{name}.{figure}:,.2f}} ms")
                        for label, name in _LATENCIES.items()
                        for figure in ("mean", *_PERCENTILES)
                    ),
                    *(
                        (
                            f"short requests: {label}, {figure}",
                            f"{{@.short.{name}.{figure}:,.2f}} ms",
                        )
                        for label, name in _LATENCIES.items()
                        for figure in ("mean", "p99")
                    ),
                    ("throughput", "{@.tok_s:,.0f} tok/s, {@.requests_s:.1f} requests/s"),
                    ("CPU time of a request", "{@.cpu_ms_per_request:.1f} ms"),
                    ("padding ÷ all tokens computed", "{@.padded_share:.1%}"),
                    ("steps without a graph", "{@.eager_share:.1%}"),
                    ("GPU's time between steps ÷ all", "{@.gap_share:.1%}"),
                )
            ]
            + [("graphs captured beside a round", "", "{lazy.captured:.0f}", "")],
        ),
        plots=[
            Plot(
                file=f"traffic_{file}",
                title=f"{title}, ms",
                groups=_PERCENTILES,
                series={
                    "with graphs": f"graphs.{name}.{{}}",
                    "eagerly": f"eager.{name}.{{}}",
                    "beside captures": f"lazy.{name}.{{}}",
                },
                spec=".2f",
            )
            for file, title, name in (
                ("ttft", "Recorded traffic: to the first token", "ttft_ms"),
                ("itl", "Recorded traffic: between two tokens", "itl_ms"),
                ("short", "Recorded traffic: whole short requests", "short.request_ms"),
            )
        ],
    ),
    "graph_modes": Shown(
        command="graph_modes",
        table=Table(
            ("decode steps", "one graph", "in pieces", "launch by launch"),
            [
                _row(f"{label}, batch {batch}", pattern.replace("#", str(batch)), *_MODES)
                for label, pattern in (
                    ("launches", "{@.launches.#:.0f}"),
                    ("CPU time to launch", "{@.cpu_us.#:.0f} µs"),
                    ("time of a step", "{@.step_ms.#:.3f} ms"),
                    ("weights read", "{@.weights_tb_s.#:.2f} TB/s"),
                )
                for batch in _BATCHES
            ]
            + [
                (*_row(label, pattern, "full", "piecewise"), "")
                for label, pattern in (
                    ("to make from an image, batch 1", "{@.load_ms.1:.2f} ms"),
                    ("of that: instantiation", "{@.instantiate_ms.1:.2f} ms"),
                    ("of that: upload", "{@.upload_ms.1:.2f} ms"),
                )
            ],
        ),
        plots=[
            Plot(
                file=f"graph_modes_{name}",
                title=title,
                groups={f"batch {batch}": str(batch) for batch in _BATCHES},
                series={
                    "one graph": f"full.{name}.{{}}",
                    "in pieces": f"piecewise.{name}.{{}}",
                    "launch by launch": f"eager.{name}.{{}}",
                },
                spec=spec,
            )
            for name, title, spec in (
                ("step_ms", "A decode step, ms", ".2f"),
                ("cpu_us", "CPU time to launch a decode step, µs", ".0f"),
            )
        ],
    ),
    "gpt2": Shown(
        command="gpt2_forward",
        table=Table(
            ("batch, sequence", "eagerly", "graph", "ratio"),
            [
                (
                    f"{batch}, {length}",
                    f"{{eager_ms.{batch}.{length}:.2f}} ms",
                    f"{{graph_ms.{batch}.{length}:.2f}} ms",
                    f"{{eager_ms.{batch}.{length} / graph_ms.{batch}.{length}:.2f}}",
                )
                for batch, length in _INPUTS
            ],
        ),
        plots=[
            Plot(
                file="gpt2",
                title="One forward pass of GPT-2's shape, ms",
                groups={f"{batch}, {length}": f"{batch}.{length}" for batch, length in _INPUTS},
                series={"graph": "graph_ms.{}", "eagerly": "eager_ms.{}"},
                spec=".2f",
            )
        ],
    ),
    "streaming": Shown(
        command="streaming",
        table=Table(
            ("", "µs for each token"),
            [
                ("event loop: detokenize, write JSON, send", "{event_loop_us_per_token:.0f}"),
                (
                    "engine's thread: schedule, write the step, read tokens, hand out",
                    "{engine_thread_us_per_token:.0f}",
                ),
            ],
        ),
    ),
    "cpu_decode": Shown(
        command="cpu_decode --model DIR",
        table=Table(
            ("", "ratio"),
            [
                (
                    "tokens per second, batch 1, with graphs ÷ transformers",
                    "{ratio.graph_1_to_transformers:.2f}",
                ),
                (
                    "tokens per second, 8 sequences ÷ 1, with graphs",
                    "{ratio.graph_8_to_graph_1:.2f}",
                ),
                (
                    "tokens per second with graphs ÷ eagerly, batch 1",
                    "{graph.tok_s_1 / eager.tok_s_1:.2f}",
                ),
                ("the same, 8 sequences", "{graph.tok_s_8 / eager.tok_s_8:.2f}"),
            ],
        ),
    ),
    "restored_check": Shown(
        command="restored_check --model DIR",
        table=Table(
            ("", "ratio"),
            [("time of the check, with answers ÷ without", "{ratio.by_answer_to_in_full:.2f}")],
        ),
    ),
    "speculative": _drafts(
        "--model DIR",
        {"repeats": "answers that repeat their prompt", "new": "answers to open questions"},
    ),
    "speculative_gpu": _drafts(
        "--device cuda", {"right": "every draft is right", "wrong": "every draft is wrong"}
    ),
}
