"""Whose cluster the demo and the cluster tests use."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.environment import has_own_cluster


@pytest.fixture(autouse=True)
def _machine_without_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARMGRAPH_STATE", str(tmp_path))


@pytest.mark.parametrize("value", [None, ""])
def test_without_kubeconfig_the_cluster_is_ours_even_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv("KUBECONFIG", raising=False)
    else:
        monkeypatch.setenv("KUBECONFIG", value)

    assert not has_own_cluster()


def test_a_kubeconfig_is_the_users_where_there_is_no_local_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    assert has_own_cluster()
