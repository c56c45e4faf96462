"""The tests that tests/README.md promises are there."""

from __future__ import annotations

import re

import pytest

from tests.repo.files import ROOT, text

PROMISED = re.findall(r"`([\w/]+\.py)::(\w+)`", text(ROOT / "tests" / "README.md"))


def test_promises_are_found() -> None:
    """Guards the test below."""
    assert len(PROMISED) > 20


@pytest.mark.parametrize(("file", "name"), PROMISED)
def test_a_promised_test_exists(file: str, name: str) -> None:
    assert f"def {name}(" in text(ROOT / "tests" / file)
