"""Prometheus metrics of the ranks: where each of them is."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warmgraph_engine.parallel.ranks import Ranks


class RankMetrics(Collector):
    """Register it once the model is loaded."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def collect(self) -> Iterator[Metric]:
        steps = CounterMetricFamily(
            "warmgraph_rank_steps",
            "Steps that each rank took up, and those that it finished (on a GPU: handed to it).",
            labels=["rank", "state"],
        )
        graph = GaugeMetricFamily(
            "warmgraph_rank_graph",
            "Number of the graph that each rank replayed last, with its bucket; 0 is eager.",
            labels=["rank", "kind", "bucket"],
        )
        for rank in range(self._ranks.size):
            place = self._ranks.progress.of(rank)
            steps.add_metric([str(rank), "begun"], place.begun)
            steps.add_metric([str(rank), "done"], place.done)
            graph.add_metric([str(rank), place.kind, str(place.bucket)], place.graph)
        yield steps
        yield graph
        lost = GaugeMetricFamily(
            "warmgraph_ranks_lost", "1 once a rank was lost, and the engine with it."
        )
        lost.add_metric([], bool(self._ranks.lost))
        yield lost
