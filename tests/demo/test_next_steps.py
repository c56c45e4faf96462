"""What the demo says in the end fits the cluster that it ran on."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.environment import expand_home
from demo.next_steps import next_steps


@pytest.fixture(autouse=True)
def _machine_without_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARMGRAPH_STATE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_local_cluster_is_entered_and_removed_without_kubeconfig(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)

    text = next_steps("smollm2")

    assert 'eval "$(python3 -m devcluster env)"' in text
    assert "`make demo-down`" in text and "KUBECONFIG" not in text


def test_a_given_cluster_is_cleaned_with_its_kubeconfig(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", "~/.kube/config")
    expand_home()

    text = next_steps("smollm2")

    assert f"export KUBECONFIG={tmp_path}/.kube/config" in text
    assert f"`make demo-down KUBECONFIG={tmp_path}/.kube/config`" in text
    assert "devcluster" not in text
