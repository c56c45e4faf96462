"""docs/api-reference.md, which people read instead of the CRD."""

from __future__ import annotations

import re

from warmgraph_api.crd import object_schema
from warmgraph_api.reference import reference

TEXT = reference(object_schema())


def section(name: str) -> str:
    return TEXT.split(f"\n## {name}\n")[1].split("\n## ")[0]


def test_a_field_shows_type_default_and_meaning() -> None:
    row = "| `maxBatchSize` | integer, 1 to 4096 | `8` | Most sequences in one step. |"
    assert row in section("spec.engine")


def test_a_choice_shows_its_values() -> None:
    assert '| `strategy` | `Replace`, `Surge` | `"Surge"` |' in section("spec.rollout")


def test_a_required_field_says_so() -> None:
    assert "| `uri` | string | required |" in section("spec.model")


def test_the_rules_stand_with_the_fields_they_are_about() -> None:
    assert "- scaling.minReplicas must not be above" in section("spec.scaling")
    assert "- `uri`: model.uri must be pvc://" in section("spec.model")


def test_every_link_has_its_section() -> None:
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[.\[\]]", "", heading).lower() for heading in headings}
    links = re.findall(r"\]\(#([^)]*)\)", TEXT)
    assert len(links) > 15
    assert set(links) <= anchors


def test_a_table_row_stays_on_one_line() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|")]
    assert all(line.count(" | ") >= 3 and line.endswith("|") for line in rows)
