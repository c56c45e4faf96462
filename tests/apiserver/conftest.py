"""One real API server for the tests in this folder, with the CRD installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.api import ControlPlane, Running

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a control plane, and the first test waits for its start."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.apiserver)
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Running]:
    """An API server with the CRD; the controller manager ends namespaces and follows owners."""
    with ControlPlane(extras=["controller-manager"]) as running:
        running.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield running
