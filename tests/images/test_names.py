"""An image's name says what is in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from images import catalogue
from images.catalogue import CONTROL_PLANE, DEMO_MODEL, ENGINE, Image
from images.context import snapshot
from images.paths import ROOT


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of everything that any image is built from; a test leaves it as it found it."""
    copy = tmp_path_factory.mktemp("sources")
    for image in catalogue.ALL:
        with snapshot(image) as folder:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
    return copy


def tags(root: Path) -> dict[str, str]:
    return {image.name: catalogue.tag(image, base="base:1", root=root) for image in catalogue.ALL}


def changed_by(root: Path, path: str) -> set[str]:
    """The images whose names change with a file."""
    before = tags(root)
    file = root / path
    original = file.read_bytes() if file.exists() else None
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes((original or b"") + b"# changed\n")
    after = tags(root)
    if original is None:
        file.unlink()
    else:
        file.write_bytes(original)
    return {name for name in before if before[name] != after[name]}


def test_the_same_sources_give_the_same_names(sources: Path) -> None:
    assert tags(sources) == tags(sources)


def test_a_name_carries_the_version() -> None:
    tag = catalogue.tag(CONTROL_PLANE, base="base:1")

    assert tag.startswith(f"{catalogue.version()}-")


@pytest.mark.parametrize(
    ("path", "images"),
    [
        ("sidecar/warmgraph_sidecar/verdict.py", {"control-plane"}),
        ("operator/warmgraph_operator/new.py", {"control-plane"}),
        ("engine/warmgraph_engine/step.py", {"engine", "demo-model"}),
        ("api/warmgraph_api/wire.py", {"control-plane", "engine", "demo-model"}),
        ("pyproject.toml", {"control-plane", "engine", "demo-model"}),
        ("images/requirements/engine.txt", {"engine"}),
        ("images/engine.Containerfile", {"engine"}),
        ("images/uv.sh", {"control-plane", "engine", "demo-model"}),
        ("demo/fetch_model.py", {"demo-model"}),
        ("README.md", set()),
        ("api/README.md", {"control-plane", "engine", "demo-model"}),
        ("engine/warmgraph_engine/__pycache__/step.cpython-311.pyc", set()),
    ],
)
def test_a_change_renames_the_images_that_it_is_in(
    sources: Path, path: str, images: set[str]
) -> None:
    assert changed_by(sources, path) == images


def test_another_base_is_another_image() -> None:
    assert catalogue.tag(ENGINE, base="a:1") != catalogue.tag(ENGINE, base="b:1")


def test_a_file_that_moves_renames_the_image(sources: Path) -> None:
    before = tags(sources)
    folder = sources / "sidecar" / "warmgraph_sidecar"
    (folder / "drain.py").rename(folder / "drained.py")
    after = tags(sources)
    (folder / "drained.py").rename(folder / "drain.py")

    assert after["control-plane"] != before["control-plane"]


@pytest.mark.parametrize("image", catalogue.ALL, ids=lambda image: image.name)
def test_a_build_sees_what_its_containerfile_copies(image: Image) -> None:
    """And .dockerignore lets through what the snapshot holds, for builds without this tool."""
    copied = {
        source
        for line in (ROOT / image.containerfile).read_text().splitlines()
        if line.startswith("COPY ") and "--from=" not in line
        for source in line.split()[1:-1]
    }
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    with snapshot(image) as folder:
        for source in copied:
            assert (folder / source).exists(), source
            assert any(
                source == rule.removeprefix("!") or source.startswith(f"{rule.removeprefix('!')}/")
                for rule in let_in
                if rule.startswith("!")
            ), source


def test_the_demos_model_is_not_rebuilt_with_torch() -> None:
    assert "torch" not in (ROOT / DEMO_MODEL.requirements).read_text()
