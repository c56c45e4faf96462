"""Prometheus metrics of the operator."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from warmgraph_api.status import ColdStart

_COLD_START_BUCKETS = (0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 480, 960)
"""Seconds: from a restored small model to a large one that compiles and captures."""

_PASS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
"""Seconds: a dozen reads take tens of milliseconds; the last is the request timeout."""


class Metrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.passes = Counter(
            "warmgraph_operator_reconciles",
            "Passes over a resource, by result.",
            ["result"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "warmgraph_operator_reconcile_seconds",
            "Time of one pass.",
            registry=self.registry,
            buckets=_PASS_BUCKETS,
        )
        self.writes = Counter(
            "warmgraph_operator_writes",
            "Writes to the API server, by verb and resource.",
            ["verb", "resource"],
            registry=self.registry,
        )
        self.wakes = Counter(
            "warmgraph_operator_wakes",
            "Reasons for a pass: a watch event, the resync, a change seen in a pod.",
            ["cause"],
            registry=self.registry,
        )
        self.resources = Gauge(
            "warmgraph_operator_resources",
            "InferenceDeployments that are looked after.",
            registry=self.registry,
        )
        self.cold_starts = Histogram(
            "warmgraph_cold_start_seconds",
            "Engine process start to the end of its warmup, by graph cache result.",
            ["cache"],
            registry=self.registry,
            buckets=_COLD_START_BUCKETS,
        )
        self.scalings = Counter(
            "warmgraph_operator_scalings",
            "Changes of spec.replicas by the built-in autoscaler, by direction.",
            ["direction"],
            registry=self.registry,
        )

    def count_write(self, verb: str, plural: str) -> None:
        self.writes.labels(verb, plural).inc()

    def record_start(self, start: ColdStart, cache: str) -> None:
        self.cold_starts.labels(cache or "Unknown").observe(start.total_milliseconds / 1000)
