"""A namespace for each test, with an operator that the test starts."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from devcluster.api import Running
from tests.apiserver.operator.world import World, open_world

_numbers = itertools.count(1)


@pytest.fixture
async def world(control_plane: Running, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    opened = await open_world(
        f"operator-{next(_numbers)}", control_plane.kubeconfig, control_plane.audit_log
    )
    yield opened
    await opened.close()
