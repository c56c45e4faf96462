"""A cluster with the chart installed and the models on a volume; the tests make deployments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo import install
from demo.environment import prepare
from demo.kube import Cluster
from tests.cluster.deployment import Deployment

NAMESPACE = "warmgraph-test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the whole cluster, and real starts take their time."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    prepared = prepare()
    install.chart(prepared)
    return prepared


@pytest.fixture(scope="session")
def namespace(cluster: Cluster) -> Iterator[str]:
    install.models(cluster, NAMESPACE)
    yield NAMESPACE
    cluster.kubectl("delete", "infd", "--all", "-n", NAMESPACE, "--timeout=120s")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")


@pytest.fixture(scope="module")
def deploy(cluster: Cluster, namespace: str) -> Iterator[Callable[..., Deployment]]:
    """Applies the example under a name of its own, with changes to its spec; removed afterwards."""
    made: list[Deployment] = []

    def apply(name: str, **changes: Any) -> Deployment:
        deployment = Deployment(cluster=cluster, namespace=namespace, name=name)
        made.append(deployment)
        deployment.apply(changes)
        return deployment

    yield apply
    for deployment in made:
        deployment.delete()
