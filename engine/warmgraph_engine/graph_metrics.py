"""Prometheus metrics of steps and graphs, per bucket, read from the counts when scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warmgraph_engine.counts import StepCounts
from warmgraph_engine.graphs import GraphTable


class GraphMetrics(Collector):
    """Register it once the model is loaded."""

    def __init__(
        self, counts: StepCounts, graphs: GraphTable, launches: Callable[[], int | None]
    ) -> None:
        """`launches` is Backend.launches."""
        self._counts, self._graphs, self._launches = counts, graphs, launches

    def collect(self) -> Iterator[Metric]:
        steps = CounterMetricFamily(
            "warmgraph_steps",
            "Steps by the bucket they wanted (0: none holds them), the path they took, and why.",
            labels=["kind", "bucket", "path", "reason"],
        )
        for (kind, size, path, reason), count in list(self._counts.steps.items()):
            steps.add_metric([kind, str(size), path, reason], count)
        yield steps
        tokens = CounterMetricFamily(
            "warmgraph_step_tokens",
            "Tokens computed, by the bucket used (0: eager) and whether they were padding.",
            labels=["kind", "bucket", "padding"],
        )
        for padding, counter in (
            ("false", self._counts.real_tokens),
            ("true", self._counts.padded_tokens),
        ):
            for (kind, size), count in list(counter.items()):
                tokens.add_metric([kind, str(size), padding], count)
        yield tokens
        replays = CounterMetricFamily(
            "warmgraph_graph_replays", "Graph launches.", labels=["kind", "bucket"]
        )
        for (kind, size), count in list(self._counts.replays.items()):
            replays.add_metric([kind, str(size)], count)
        yield replays
        launched = self._launches()
        if launched is not None:
            yield CounterMetricFamily(
                "warmgraph_kernel_launches",
                "Kernels launched one by one: of eager steps, and those outside of a graph.",
                value=launched,
            )
        checks = CounterMetricFamily(
            "warmgraph_graph_checks",
            "Known-answer checks, by what a graph was compared with, and why.",
            labels=["kind", "bucket", "path", "reason"],
        )
        for (kind, size, *labels), count in list(self._counts.checks.items()):
            checks.add_metric([kind, str(size), *map(str, labels)], count)
        yield checks
        yield from self._buckets()

    def _buckets(self) -> Iterator[Metric]:
        labels = ["kind", "bucket"]
        seconds = GaugeMetricFamily(
            "warmgraph_graph_capture_seconds",
            "Time that the capture or the restore of a bucket's graph took.",
            labels=[*labels, "state"],
        )
        memory = GaugeMetricFamily(
            "warmgraph_graph_bytes", "Memory of a bucket's graph beside the arena.", labels=labels
        )
        instantiate = GaugeMetricFamily(
            "warmgraph_graph_instantiate_seconds",
            "Of that time, the driver's to instantiate the graph.",
            labels=labels,
        )
        upload = GaugeMetricFamily(
            "warmgraph_graph_upload_seconds",
            "Of that time, the driver's to upload the graph.",
            labels=labels,
        )
        for entry in self._graphs.entries():
            bucket = entry.bucket
            of = [bucket.kind, str(bucket.size)]
            seconds.add_metric([*of, bucket.state], bucket.seconds)
            memory.add_metric(of, bucket.bytes)
            graph = entry.graph  # which the engine's thread may take away meanwhile
            times = None if graph is None else graph.driver_times
            if times is not None:
                instantiate.add_metric(of, times.instantiate)
                upload.add_metric(of, times.upload)
        yield seconds
        yield instantiate
        yield upload
        yield memory
        failures = CounterMetricFamily(
            "warmgraph_graph_capture_failures", "Captures that failed, each disabling its bucket."
        )
        failures.add_metric([], self._graphs.capture_failures)
        yield failures
        yield CounterMetricFamily(
            "warmgraph_graph_replacements",
            "Graphs recorded and instantiated anew, since the one before was found wrong.",
            value=self._graphs.replaced,
        )
