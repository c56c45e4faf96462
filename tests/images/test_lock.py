"""The images' requirements are those of pyproject.toml, at the versions that are tested."""

from __future__ import annotations

import pytest

from images import lock, paths
from images.lock import LOCKS, drift, pins


@pytest.mark.parametrize("name", LOCKS)
def test_requirements_are_current(name: str) -> None:
    assert list(drift(name)) == []


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_has_digests(name: str) -> None:
    text = (paths.REQUIREMENTS / f"{name}.txt").read_text()

    assert text.count("==") == len(pins(text))
    for block in text.split("\n\n")[-1].split("\n"):
        assert block.startswith(("    --hash=sha256:", "#")) or block.endswith("\\") or not block


def test_the_control_plane_has_no_torch() -> None:
    text = (paths.REQUIREMENTS / "control-plane.txt").read_text()

    assert not {"torch", "numpy", "transformers"} & set(pins(text))


def test_a_changed_version_and_a_new_dependency_are_noticed(tmp_path, monkeypatch) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["msgspec>=0.20", "new_one"]\n'
        "[project.optional-dependencies]\nengine = []\n"
    )
    (tmp_path / "constraints.txt").write_text("msgspec==2.0\n")
    (tmp_path / "engine.txt").write_text("msgspec==1.0 \\\n    --hash=sha256:00\n")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "REQUIREMENTS", tmp_path)

    assert list(lock.drift("engine")) == [
        "msgspec is 1.0, and 2.0 in constraints.txt",
        "new-one is missing",
    ]


def test_names_are_compared_as_the_package_index_does() -> None:
    assert pins("Foo_Bar.baz==1\n") == {"foo-bar-baz": "1"}
