"""Dashboards and alerts ask for metrics that the processes have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.chart.helm import CHART, ROOT, Helm, Object, one

DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
# What Prometheus makes of a counter or histogram.
SUFFIXES = r"(_total|_bucket|_count|_sum)$"


def exported() -> set[str]:
    """Names of metrics in the processes' sources, without Prometheus' suffixes.

    A name is written whole, or in two parts: a prefix in an f-string, and the rest in the calls.
    """
    names: set[str] = set()
    for process in ("operator", "activator", "sidecar", "engine"):
        for path in (ROOT / process).rglob("*metrics*.py"):
            text = path.read_text()
            names |= set(re.findall(r'"(warmgraph_[a-z_]+)"', text))
            words = set(re.findall(r'"([a-z_]+)"', text))
            for prefix in re.findall(r'f"(warmgraph_[a-z_]*)\{', text):
                names |= {prefix + word for word in words}
    return {re.sub(SUFFIXES, "", name) for name in names}


def asked(expression: str) -> Iterator[str]:
    """Names of metrics in an expression of PromQL. Those with our API group are labels of pods."""
    without_labels = re.sub(r"\{[^}]*\}|\bby \([^)]*\)", "", expression)
    for name in re.findall(r"\bwarmgraph_(?!dev_)[a-z_]+", without_labels):
        yield re.sub(SUFFIXES, "", name)


def expressions(dashboard: Object) -> Iterator[str]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_metrics_that_exist(path) -> None:
    dashboard = json.loads(path.read_text())

    missing = {n for e in expressions(dashboard) for n in asked(e)} - exported()
    assert missing == set()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_alerts_ask_for_metrics_that_exist(everything) -> None:
    rules = [
        r
        for g in one(everything, "PrometheusRule", "warmgraph")["spec"]["groups"]
        for r in g["rules"]
    ]

    assert {n for rule in rules for n in asked(rule["expr"])} - exported() == set()
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


def test_a_metric_that_does_not_exist_would_be_noticed() -> None:
    assert list(asked('sum by (warmgraph_dev_x) (rate(warmgraph_no_such_total{a="b"}[5m]))')) == [
        "warmgraph_no_such"
    ]
    assert "warmgraph_no_such" not in exported()


def test_every_dashboard_has_a_config_map_that_grafana_finds(everything) -> None:
    maps = [found for found in everything if found["kind"] == "ConfigMap"]
    maps.sort(key=lambda found: found["metadata"]["name"])

    assert len(maps) == len(DASHBOARDS) == 2
    for found, path in zip(
        sorted(maps, key=lambda m: m["metadata"]["name"]), DASHBOARDS, strict=True
    ):
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(found["data"][path.name]) == json.loads(path.read_text())


def test_model_pods_are_scraped_where_they_are_served(helm: Helm, everything) -> None:
    some = helm.render(
        {"watchNamespaces": ["team-a"], "monitoring": {"podMonitor": {"enabled": True}}}
    )

    assert one(everything, "PodMonitor", "-model-pods")["spec"]["namespaceSelector"] == {
        "any": True
    }
    assert one(some, "PodMonitor", "-model-pods")["spec"]["namespaceSelector"] == {
        "matchNames": ["team-a"]
    }


def test_monitors_scrape_ports_that_exist(everything) -> None:
    services = [o for o in everything if o["kind"] == "Service"]
    ports = {port["name"] for service in services for port in service["spec"]["ports"]}
    monitor = one(everything, "ServiceMonitor", "warmgraph")["spec"]

    assert {endpoint["port"] for endpoint in monitor["endpoints"]} == ports
