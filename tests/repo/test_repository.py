"""What holds for the repository as a whole, whoever writes in it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from tests.repo.files import ROOT, name, text, tracked

LARGEST_FILE_BYTES = 1 << 20
"""Larger ones are built or downloaded things, which every clone would carry for ever."""

# Written in pieces, so that this file does not name them either.
REGISTRIES = [
    ".".join(pieces)
    for pieces in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("deb", "debian", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("registry", "npmjs", "org"),
        ("download", "pytorch", "org"),
    )
]


def folders() -> list[str]:
    tops = {path.relative_to(ROOT).parts[0] for path in tracked() if path.parent != ROOT}
    return sorted(top for top in tops if not top.startswith("."))


@pytest.mark.parametrize("folder", folders())
def test_a_folder_says_what_it_is_for(folder: str) -> None:
    readme = f"{folder}/README.md"
    assert readme in {name(path) for path in tracked()}
    assert len(text(ROOT / readme).splitlines()) >= 5


def test_no_file_is_large() -> None:
    large = {name(p) for p in tracked() if p.stat().st_size > LARGEST_FILE_BYTES}
    assert large == set()


def test_every_file_is_text() -> None:
    def is_text(path: Path) -> bool:
        try:
            return "\0" not in text(path)
        except UnicodeDecodeError:
            return False

    assert {name(path) for path in tracked() if not is_text(path)} == set()


def test_no_file_names_a_package_registry() -> None:
    """Where packages come from is for each machine's own configuration to say."""
    naming = {
        f"{name(path)}: {host}" for path in tracked() for host in REGISTRIES if host in text(path)
    }
    assert naming == set()


def test_every_package_is_typed_for_its_users() -> None:
    packages = {path.parent for path in tracked() if path.name == "__init__.py"}
    outermost = {
        package
        for package in packages
        if package.name.startswith("warmgraph_") and package.parent not in packages
    }
    assert len(outermost) == 5
    assert {str(package) for package in outermost if not (package / "py.typed").exists()} == set()


def test_the_operator_folder_does_not_shadow_a_standard_module() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_commit_hooks_download_nothing() -> None:
    config = yaml.safe_load(text(ROOT / ".pre-commit-config.yaml"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    assert {hook["language"] for hook in config["repos"][0]["hooks"]} == {"system"}


def test_chart_and_images_carry_the_version_of_the_product() -> None:
    version = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["version"]
    chart = yaml.safe_load(text(ROOT / "charts" / "warmgraph" / "Chart.yaml"))
    values = yaml.safe_load(text(ROOT / "charts" / "warmgraph" / "values.yaml"))
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert values["images"]["controlPlane"].endswith(f":{version}")
    assert values["images"]["engine"].endswith(f":{version}")


def test_every_example_is_listed() -> None:
    listing = text(ROOT / "examples" / "README.md")
    examples = sorted((ROOT / "examples").glob("*.yaml"))
    assert examples
    assert [path.name for path in examples if f"]({path.name})" not in listing] == []


def test_every_decision_is_listed_and_decided() -> None:
    folder = ROOT / "docs" / "decisions"
    listing = text(folder / "README.md")
    records = sorted(folder.glob("[0-9]*.md"))
    assert [path.name[:4] for path in records] == [f"{n:04}" for n in range(1, len(records) + 1)]
    for record in records:
        assert f"]({record.name})" in listing
        assert text(record).startswith(f"# {record.name[:4]}: ")
        for part in ("**Context.**", "**Decision.**", "**What follows.**"):
            assert part in text(record), record.name
