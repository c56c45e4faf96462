"""`warmgraph cache`, as a person uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.store.entries import KEY, image, key, store
from warmgraph_api.report import StepKind
from warmgraph_engine.cli import main
from warmgraph_engine.store.layout import Plan, PlannedBucket


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    plan = Plan(buckets=[PlannedBucket(kind=StepKind.DECODE, size=2, milliseconds=40, hits=3)])
    for k in (KEY, key(model_revision="next")):
        publisher = store(tmp_path, k)
        publisher.publish([image(1), image(2)], plan)
        publisher.close()
    return tmp_path


def output(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert main(["cache", *command]) == 0
    return capsys.readouterr().out


def test_ls_has_a_line_for_each_entry(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = store(cache)
    user.look_up()
    lines = output(capsys, "ls", str(cache)).splitlines()
    assert len(lines) == 3
    mine = next(line for line in lines if line.startswith(KEY.digest()[:12]))
    assert f"in use   local@{KEY.digest()[:12]}" in mine
    user.close()


def test_show_tells_every_field_and_bucket(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "show", str(cache), KEY.digest()[:8])
    for name in KEY.__struct_fields__:
        assert name in text
    assert "captured in 40 ms, hits 3" in text
    answer = image(2).answer
    assert answer is not None
    assert f"answer {answer.digest[:12]}" in text


def test_show_wants_one_entry(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "show", str(cache), ""]) == 1
    assert "2 entries begin with ''" in capsys.readouterr().err


def test_verify_finds_the_damaged_entry(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "verify", str(cache)).count("ok") == 2
    next((cache / KEY.digest() / "images").iterdir()).write_bytes(b"x")
    assert main(["cache", "verify", str(cache)]) == 1
    text = capsys.readouterr().out
    assert f"{KEY.digest()[:12]}  " in text
    assert "bytes instead of" in text


def test_prune_keeps_what_is_asked_for(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "prune", str(cache)) == "nothing to remove\n"
    assert output(capsys, "prune", str(cache), "--keep-revisions", "0").count("removed") == 1
    assert output(capsys, "prune", str(cache), "--max-size", "0").count("removed") == 1
    assert output(capsys, "ls", str(cache)) == "no entries\n"
    assert main(["cache", "prune", str(cache), "--keep-revisions", "-1"]) == 1


def test_a_folder_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "ls", str(tmp_path / "none")]) == 1
    assert "none: No such file or directory" in capsys.readouterr().err
