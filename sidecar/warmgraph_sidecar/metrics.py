"""Prometheus metrics of a model pod, read from the state at the moment of a scrape.

Nothing is counted twice and nothing can go stale. Labels have few and fixed values; only the
names of cold-start stages come from the engine, and their number is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warmgraph_api.report import (
    BucketMode,
    BucketState,
    CacheResult,
    Stage,
    StepKind,
    WarmupReport,
)
from warmgraph_sidecar.drain import Drain
from warmgraph_sidecar.pod import Pod
from warmgraph_sidecar.receiver import Receiver

MAX_TIMELINE_STAGES = 32
"""An engine has about ten stages; a faulty one must not fill the time series database."""


class PodCollector(Collector):
    def __init__(self, pod: Pod, drain: Drain, receiver: Receiver) -> None:
        self._pod = pod
        self._drain = drain
        self._receiver = receiver

    def describe(self) -> Iterable[Metric]:
        """Empty: registering must not ask for values."""
        return []

    def collect(self) -> Iterable[Metric]:
        yield from self._verdict()
        yield from self._drains()
        if self._pod.report is not None:
            yield from _warmup(self._pod.report)
            yield from _load(self._pod.report)

    def _verdict(self) -> Iterable[Metric]:
        ready, live = self._pod.readiness(), self._pod.liveness()
        yield _gauge("ready", "1 if the pod may get traffic.", ready.ok)
        reason = GaugeMetricFamily(
            "warmgraph_pod_readiness_reason",
            "1 for the reason why the pod is ready or not.",
            labels=["reason"],
        )
        reason.add_metric([ready.reason], 1)
        yield reason
        yield _gauge("live", "0 if only a restart can help the engine.", live.ok)
        yield _gauge("draining", "1 from the start of a drain.", self._pod.draining)
        yield _gauge("engine_connected", "1 while the engine reports.", self._pod.connected)
        yield _counter("engine_restarts", "Engine restarts in this pod.", self._pod.engine_restarts)
        dropped = CounterMetricFamily(
            "warmgraph_pod_report_connections_dropped",
            "Report connections dropped for a bad line.",
            labels=["cause"],
        )
        for cause in ("malformed", "oversized"):
            dropped.add_metric([cause], self._receiver.dropped[cause])
        yield dropped

    def _drains(self) -> Iterable[Metric]:
        yield _counter("drains", "Drains begun.", self._drain.started_total)
        if self._drain.last is not None:
            yield _gauge(
                "last_drain_seconds", "Length of the last drain.", self._drain.last.seconds
            )
            yield _gauge(
                "last_drain_unfinished_requests",
                "Requests in flight at the end of the last drain.",
                self._drain.last.in_flight,
            )


def _warmup(report: WarmupReport) -> Iterable[Metric]:
    stage = GaugeMetricFamily(
        "warmgraph_pod_stage", "1 for the engine's stage, 0 for the others.", labels=["stage"]
    )
    for value in Stage:
        stage.add_metric([value], report.stage is value)
    yield stage

    counts = Counter((b.kind, b.mode, b.state) for b in report.buckets)
    buckets = GaugeMetricFamily(
        "warmgraph_pod_buckets",
        "Buckets by kind of step, mode and state.",
        labels=["kind", "mode", "state"],
    )
    for kind in StepKind:
        for mode in BucketMode:
            for state in BucketState:
                buckets.add_metric([kind, mode, state], counts[kind, mode, state])
    yield buckets

    cache = GaugeMetricFamily(
        "warmgraph_pod_graph_cache_result",
        "1 for the result of the graph cache lookup, 0 for the others.",
        labels=["result"],
    )
    for result in CacheResult:
        cache.add_metric([result], report.cache.result is result)
    yield cache

    timeline = GaugeMetricFamily(
        "warmgraph_pod_cold_start_stage_seconds",
        "Length of each stage of the engine's start; stages may overlap.",
        labels=["stage"],
    )
    for span in {s.name: s for s in report.timeline[:MAX_TIMELINE_STAGES]}.values():
        timeline.add_metric([span.name], span.seconds)
    yield timeline
    if report.ready_seconds is not None:
        yield _gauge(
            "cold_start_seconds",
            "From the engine's process start to the end of its warmup.",
            report.ready_seconds,
        )


def _load(report: WarmupReport) -> Iterable[Metric]:
    yield _gauge("requests_running", "Requests in the engine's batch.", report.load.running)
    yield _gauge("requests_waiting", "Requests that wait for the batch.", report.load.waiting)
    yield _counter("requests", "Requests the engine accepted.", report.load.requests_total)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"warmgraph_pod_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"warmgraph_pod_{name}", text, value=value)
