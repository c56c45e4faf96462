"""Prometheus metrics of the graph cache: how this process's lookup went, and what it stored."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warmgraph_api.cachekey import CacheKey
from warmgraph_engine.report import Reporter
from warmgraph_engine.warmup.publishing import Publishing

_FIELDS = (
    "model_revision",
    "engine_version",
    "device_name",
    "driver",
    "cuda",
    "torch",
)
"""Of the key: what people compare fleets by. All of them would be a dozen digests a pod."""


class CacheMetrics(Collector):
    """Register it once the warmup is over."""

    def __init__(self, key: CacheKey, publishing: Publishing, reporter: Reporter) -> None:
        self._key, self._publishing, self._reporter = key, publishing, reporter

    def collect(self) -> Iterator[Metric]:
        cache = self._reporter.cache
        info = GaugeMetricFamily(
            "warmgraph_graph_cache_info",
            "Always 1: how the lookup went, the key field that differs from what is stored, and "
            "the key.",
            labels=["result", "field", "key", *_FIELDS],
        )
        fields = [str(getattr(self._key, name)) for name in _FIELDS]
        info.add_metric([cache.result, cache.field, cache.key[:12], *fields], 1)
        yield info
        publishes = CounterMetricFamily(
            "warmgraph_graph_cache_publishes",
            "Attempts to store graphs and what traffic used, by how they ended.",
            labels=["result"],
        )
        publishes.add_metric(["stored"], self._publishing.stored)
        publishes.add_metric(["failed"], self._publishing.failed)
        yield publishes
