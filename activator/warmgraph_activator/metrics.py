"""Prometheus metrics, per deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warmgraph_activator.hold import Hold
from warmgraph_activator.objects import Key

DEPLOYMENT = ("namespace", "name")

WAITED_SECONDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
"""From a restored engine's start to a large model's first load."""


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "warmgraph_activator_requests",
            "Requests by how they ended.",
            [*DEPLOYMENT, "outcome"],
            registry=self.registry,
        )
        self.waited = Histogram(
            "warmgraph_activator_waited_seconds",
            "From a held request's arrival to its being forwarded.",
            DEPLOYMENT,
            buckets=WAITED_SECONDS,
            registry=self.registry,
        )
        self.wakes = Counter(
            "warmgraph_activator_wakes",
            "Writes of 0 → 1 replicas: written, or failed.",
            [*DEPLOYMENT, "result"],
            registry=self.registry,
        )

    def watch(self, holds: Callable[[], Iterable[Hold]]) -> None:
        """Show the gauges of these from now on."""
        self.registry.register(_Holds(holds))

    def forget(self, key: Key) -> None:
        """A deployment is gone; its series must not stay for ever."""
        for metric in (self.requests, self.waited, self.wakes):
            metric.remove_by_labels(key._asdict())


class _Holds(Collector):
    """Gauges, read from the lines at the moment of a scrape."""

    def __init__(self, holds: Callable[[], Iterable[Hold]]) -> None:
        self._holds = holds

    def describe(self) -> Iterable[Metric]:
        """Empty: registering must not ask for values."""
        return []

    def collect(self) -> Iterable[Metric]:
        held = _gauge("held_requests", "Requests that wait for a pod.")
        size = _gauge("held_bytes", "Bytes of held request bodies.")
        sent = _gauge("forwarding", "Requests that a pod answers through here.")
        for hold in self._holds():
            held.add_metric(hold.key, hold.line.held)
            size.add_metric(hold.key, hold.line.bytes)
            sent.add_metric(hold.key, hold.pods.in_flight)
        return [held, size, sent]


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"warmgraph_activator_{name}", text, labels=DEPLOYMENT)
