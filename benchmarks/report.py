"""Writes the tables and plots of docs/benchmarks from its JSON files.

    python -m benchmarks.report [--check]

Its README keeps its text; what lies between `<!-- NAME.json -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.plots import bars
from benchmarks.results import FOLDER
from benchmarks.tables import SHOWN, Plot, Shown

MISSING = "not measured"
_BLOCK = re.compile(r"(<!-- (\w+)\.json -->\n).*?(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"\{([^}:]+):([^}]+)\}")


def rendered(folder: Path) -> dict[Path, str]:
    """What README.md and the plots of a folder have to contain. Raises KeyError for a block whose
    file nothing is known of."""
    page = folder / "README.md"
    results = {name: _read(folder / f"{name}.json") for name in SHOWN}

    def block(match: re.Match[str]) -> str:
        shown, result = SHOWN[match[2]], results[match[2]]
        return match[1] + "\n".join(_block(match[2], shown, result)) + "\n" + match[3]

    files = {page: _BLOCK.sub(block, page.read_text(encoding="utf-8"))}
    for name, shown in SHOWN.items():
        for plot in shown.plots:
            if (result := results[name]) is not None:
                files[folder / f"{plot.file}.svg"] = _drawn(plot, result["figures"])
    return files


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def _block(name: str, shown: Shown, result: dict[str, Any] | None) -> Iterator[str]:
    command = f"`python -m benchmarks.{shown.command}`"
    yield ""
    if result is None:
        yield f"{command}: {MISSING} yet.\n"
        return
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    commit = f" at {result['commit']}" if result.get("commit") else ""
    source = f"{command}, {result['hardware']}; {versions}{commit}; {result['date']};"
    yield textwrap.fill(
        f"{source} [{name}.json]({name}.json):",
        100,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield ""
    yield _line(shown.table.header)
    yield _line(["---"] * len(shown.table.header))
    for label, *cells in shown.table.rows:
        yield _line([label, *(_cell(cell, result["figures"]) for cell in cells)])
    yield ""
    for plot in shown.plots:
        yield f"![{plot.title}]({plot.file}.svg)\n"


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _cell(template: str, figures: Mapping[str, float]) -> str:
    try:
        return _FIGURE.sub(lambda match: f"{_value(match[1], figures):{match[2]}}", template)
    except KeyError:
        return MISSING


def _value(name: str, figures: Mapping[str, float]) -> float:
    above, _, below = name.partition(" / ")
    return figures[above] / figures[below] if below else figures[above]


def _drawn(plot: Plot, figures: Mapping[str, float]) -> str:
    """Without the series that a file does not have."""
    names = {
        label: [name.format(key) for key in plot.groups.values()]
        for label, name in plot.series.items()
    }
    series = [
        (label, [figures[name] for name in all_])
        for label, all_ in names.items()
        if figures.keys() >= set(all_)
    ]
    return bars(plot.title, list(plot.groups), series, spec=plot.spec)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only say what would change")
    check = parser.parse_args().check
    files = rendered(FOLDER)
    left_over = [path for path in sorted(FOLDER.glob("*.svg")) if path not in files]
    differing = [
        path for path in files if not path.exists() or path.read_text("utf-8") != files[path]
    ]
    if check:
        for path in (*differing, *left_over):
            print(f"{path} is not what the JSON files give", file=sys.stderr)
        return int(bool(differing or left_over))
    for path in differing:
        path.write_text(files[path], encoding="utf-8")
    for path in left_over:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
