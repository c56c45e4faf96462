"""The page of measured figures shows what was measured."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import arrivals, report, results
from benchmarks.results import FOLDER
from benchmarks.tables import SHOWN, Shown


def names(shown: Shown) -> set[str]:
    """Of the figures that are shown."""
    cells = " ".join(cell for row in shown.table.rows for cell in row)
    found = {name for both in re.findall(r"\{([^}:]+):", cells) for name in both.split(" / ")}
    for plot in shown.plots:
        found |= {s.format(g) for s in plot.series.values() for g in plot.groups.values()}
    return found


def test_tables_and_plots_are_what_the_files_give() -> None:
    files = report.rendered(FOLDER)
    assert {path for path in files if path.read_text() != files[path]} == set()
    assert {path for path in FOLDER.glob("*.svg") if path not in files} == set()


def test_every_file_has_a_place_on_the_page() -> None:
    page = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"<!-- (\w+)\.json -->", page)) == set(SHOWN)
    assert {path.stem for path in FOLDER.glob("*.json")} <= set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_a_file_becomes_a_table_and_plots(name: str, tmp_path: Path) -> None:
    figures = {figure: number + 0.5 for number, figure in enumerate(sorted(names(SHOWN[name])))}
    result = {"hardware": "a GPU", "versions": {"x": "1"}, "date": "2026-01-02", "figures": figures}
    (tmp_path / f"{name}.json").write_text(json.dumps(result))
    (tmp_path / "README.md").write_text(
        f"before\n<!-- {name}.json -->\nstale\n<!-- end -->\nafter\n"
    )
    files = report.rendered(tmp_path)
    page = files.pop(tmp_path / "README.md")
    assert page.startswith("before\n") and page.endswith("<!-- end -->\nafter\n")
    assert "a GPU; x 1; 2026-01-02" in " ".join(page.split())
    assert "stale" not in page and report.MISSING not in page and "{" not in page
    assert len(files) == page.count("![") == len(SHOWN[name].plots)
    for path, content in files.items():
        assert f"({path.name})" in page
        ElementTree.fromstring(content)


def test_a_file_without_newer_figures_still_has_its_place(tmp_path: Path) -> None:
    shown = SHOWN["traffic"]
    figures = {name: 1.5 for name in names(shown) if not name.startswith("lazy.")}
    result = {"hardware": "a GPU", "versions": {}, "date": "2026-01-02", "figures": figures}
    (tmp_path / "traffic.json").write_text(json.dumps(result))
    (tmp_path / "README.md").write_text("<!-- traffic.json -->\n<!-- end -->\n")
    files = report.rendered(tmp_path)
    page = files.pop(tmp_path / "README.md")
    assert page.count(report.MISSING) == sum(
        "{lazy." in cell for r in shown.table.rows for cell in r
    )
    assert [drawing.count("beside captures") for drawing in files.values()] == [0] * len(
        shown.plots
    )
    assert all("eagerly" in drawing for drawing in files.values())


def test_figures_go_where_the_page_looks_for_them_unless_told_otherwise() -> None:
    parser = argparse.ArgumentParser()
    results.add_output(parser)
    assert results.output(parser.parse_args([]), "idle") == FOLDER / "idle.json"
    asked = parser.parse_args(["--json", "x.json"])
    assert results.output(asked, "idle") == Path("x.json")


def test_other_figures_are_no_change_to_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, code = tmp_path / "docs" / "benchmarks", tmp_path / "code.py"
    folder.mkdir(parents=True)
    figures = folder / "idle.json"
    figures.touch()
    code.touch()

    def git(*command: str) -> None:
        subprocess.run(["git", "-C", tmp_path, *command], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--message=all")
    monkeypatch.setattr(results, "FOLDER", folder)
    figures.write_text("{}")
    assert re.fullmatch(r"[0-9a-f]+", results._commit())
    code.write_text("1")
    assert re.fullmatch(r"[0-9a-f]+\+", results._commit())


def test_the_recorded_traffic_is_what_its_script_writes() -> None:
    assert arrivals.FILE.read_text().splitlines() == list(arrivals.lines())
