"""docs/conditions.md, where people look up a reason they have never seen."""

from __future__ import annotations

import re
from pathlib import Path

from warmgraph_api.reasons import ConditionType, Reason

PAGE = (Path(__file__).parents[2] / "docs" / "conditions.md").read_text()


def test_every_condition_and_reason_is_explained_once() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(explained) == sorted([*ConditionType, *Reason])


def test_a_reason_for_action_says_what_to_do() -> None:
    section = PAGE.split("## Somebody must act")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    assert all(len(row) == 3 and row[2].strip(" |") for row in rows)
