"""The engine's histogram beside prometheus_client's."""

from __future__ import annotations

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from warmgraph_engine.histogram import Histogram

BUCKETS = (0.001, 0.5, 1.0, 30.0)


def test_a_page_reads_as_if_each_value_had_been_observed_by_itself() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    one = Histogram("waits_seconds", "Waits.", buckets=BUCKETS, registry=ours)
    other = prometheus_client.Histogram("waits_seconds", "Waits.", buckets=BUCKETS, registry=theirs)
    for value, count in ((0.0, 2), (0.001, 1), (0.25, 64), (1.0, 3), (29.5, 1), (31.0, 2)):
        one.observe(value, count)
        for _ in range(count):
            other.observe(value)
    expected = generate_latest(theirs).decode().splitlines()
    created = [line for line in expected if "_created" in line]
    assert generate_latest(ours).decode().splitlines() == [e for e in expected if e not in created]


def test_a_name_stands_once_in_a_registry() -> None:
    registry = CollectorRegistry()
    Histogram("waits_seconds", "Waits.", buckets=BUCKETS, registry=registry)
    with pytest.raises(ValueError, match="waits_seconds"):
        Histogram("waits_seconds", "Waits.", buckets=BUCKETS, registry=registry)
