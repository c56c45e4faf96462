from __future__ import annotations

import pytest

from tests.chart.helm import EVERYTHING, Helm, Object, find


@pytest.fixture(scope="session")
def helm() -> Helm:
    program = find()
    if program is None:
        pytest.skip("helm is not installed; `python -m devcluster build` builds it")
    return Helm(program)


@pytest.fixture(scope="session")
def defaults(helm: Helm) -> list[Object]:
    """What a plain install makes."""
    return helm.render()


@pytest.fixture(scope="session")
def everything(helm: Helm) -> list[Object]:
    """What an install with every switch on makes."""
    return helm.render(EVERYTHING)
