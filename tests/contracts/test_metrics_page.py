"""docs/metrics.md lists what the processes export: no more, no less."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Metric

from tests.engine.store.entries import KEY
from tests.sidecar.reports import policy, report
from warmgraph_activator import metrics as activator
from warmgraph_api.resource import Execution
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.graph_metrics import GraphMetrics
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.parallel.metrics import RankMetrics
from warmgraph_engine.parallel.progress import Progress
from warmgraph_engine.report import Reporter
from warmgraph_engine.switch import ExecutionSwitch
from warmgraph_engine.warmup.cache_metrics import CacheMetrics
from warmgraph_operator import metrics as operator
from warmgraph_sidecar.drain import Drain, Outcome
from warmgraph_sidecar.metrics import PodCollector
from warmgraph_sidecar.pod import Pod
from warmgraph_sidecar.receiver import Receiver

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def names(metrics: Iterable[Metric]) -> set[str]:
    """As they are scraped, but for the series of a histogram, and those of the process itself."""
    return {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in metrics
        if not metric.name.startswith("process_")
    }


def of_the_engine() -> Iterator[Metric]:
    registry = CollectorRegistry()
    EngineMetrics(registry)
    ExecutionSwitch(Execution.GRAPHS, registry)
    yield from registry.collect()
    graphs = cast(Any, SimpleNamespace(entries=list, capture_failures=0, replaced=0))
    yield from GraphMetrics(StepCounts(), graphs, lambda: 0).collect()
    publishing = cast(Any, SimpleNamespace(stored=0, failed=0))
    reporter = Reporter(model="", revision="", buckets=(), started_at=0.0)
    yield from CacheMetrics(KEY, publishing, reporter).collect()
    ranks = cast(Any, SimpleNamespace(size=1, progress=Progress.create(1), lost=""))
    yield from RankMetrics(ranks).collect()


def of_the_operator() -> Iterable[Metric]:
    return operator.Metrics().registry.collect()


def of_the_sidecar() -> Iterable[Metric]:
    pod = Pod(policy())
    pod.on_report(report(ready_seconds=1.0))
    drain = Drain(pod, timeout_seconds=1, settle_seconds=0, tell_engine=lambda: None)
    drain.last = Outcome(drained=True, in_flight=0, seconds=0, message="")
    return PodCollector(pod, drain, Receiver(pod, Path("/nowhere"))).collect()


def of_the_activator() -> Iterable[Metric]:
    exported = activator.Metrics()
    exported.watch(list)
    return exported.registry.collect()


def test_the_page_lists_every_metric_and_no_other() -> None:
    exported = names(of_the_engine()) | names(of_the_sidecar()) | names(of_the_activator())
    exported |= names(of_the_operator())
    first_columns = re.findall(r"^\| (`warmgraph_[^|]*)\|", PAGE.read_text(), re.MULTILINE)
    listed = [name for column in first_columns for name in re.findall(r"`([a-z_]+)`", column)]
    assert set(listed) == exported
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("metrics", [of_the_engine, of_the_operator, of_the_activator])
def test_a_process_exports_its_processor_time_and_memory(
    metrics: Callable[[], Iterable[Metric]],
) -> None:
    """The sidecar's is tried with the sidecar as a process."""
    found = {metric.name for metric in metrics()}
    assert {"process_cpu_seconds", "process_resident_memory_bytes"} <= found
