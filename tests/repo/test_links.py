"""Links in the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repo.files import ROOT, name, text, tracked

PAGES = [path for path in tracked() if path.suffix == ".md"]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def links(page: Path) -> list[str]:
    found = LINK.findall(CODE.sub("", text(page)))
    return [link for link in found if not link.startswith(("http://", "https://", "mailto:"))]


def anchors(page: Path) -> set[str]:
    """Names that headings get on the usual renderers."""
    headings = HEADING.findall(re.sub(r"```.*?```", "", text(page), flags=re.DOTALL))
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_links_are_found() -> None:
    """Guards the test above: a pattern that matches nothing would pass everywhere."""
    assert "../docs/api-reference.md" in links(ROOT / "examples" / "README.md")
    assert "try-it" in anchors(ROOT / "README.md")
