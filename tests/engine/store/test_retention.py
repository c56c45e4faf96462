"""What stays in a cache folder: what a process uses, what a kept revision needs, within a size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.engine.store.entries import image, key, plain, store
from warmgraph_api.cachekey import CacheKey
from warmgraph_api.report import CacheResult
from warmgraph_engine.store import locks, marks, retention
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.policy import Retention, User
from warmgraph_engine.store.store import Store

MANY = 1 << 30


def of_revision(number: int) -> CacheKey:
    return key(model_revision=f"v{number}")


def serve(
    root: Path, number: int, *, owner: str = "space.tiny", keep: int = 3, most: int = MANY
) -> Store:
    """A pod of this revision of a deployment: it looks up, captures what it lacks, and publishes.
    Uses are a second apart, so that an order is to be seen."""
    pod = store(
        root,
        of_revision(number),
        retention=Retention(revisions=keep, max_bytes=most),
        user=User(owner, f"r{number}"),
    )
    images = [] if pod.look_up().result is CacheResult.HIT else [image(1), image(2)]
    assert pod.publish(images, Plan()) == ""
    serve.clock += 1  # type: ignore[attr-defined]
    entry = root / of_revision(number).digest()
    for path in (entry / "manifest.json", entry / "users" / f"{owner}@r{number}"):
        os.utime(path, (serve.clock, serve.clock))  # type: ignore[attr-defined]
    return pod


serve.clock = 1000  # type: ignore[attr-defined]


def revisions(root: Path, among: Sequence[int] = range(1, 10)) -> list[int]:
    return [number for number in among if (root / of_revision(number).digest()).exists()]


def test_a_rollback_to_any_kept_revision_finds_its_graphs(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        serve(tmp_path, number).close()
    for number in (1, 3, 2):  # back and forth
        back = store(tmp_path, of_revision(number), user=User("space.tiny", f"r{number}"))
        assert back.look_up().result is CacheResult.HIT, number
        back.close()


def test_the_oldest_revision_goes_with_the_first_that_is_one_too_many(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4, 5):
        serve(tmp_path, number).close()
    assert revisions(tmp_path) == [2, 3, 4, 5]


def test_going_back_makes_a_revision_the_newest_again(tmp_path: Path) -> None:
    for number in (1, 2, 3, 1, 4, 5):
        serve(tmp_path, number, keep=2).close()
    assert revisions(tmp_path) == [1, 4, 5]


def test_what_a_process_uses_stays_however_old(tmp_path: Path) -> None:
    user = serve(tmp_path, 1, keep=0)
    for number in (2, 3):
        serve(tmp_path, number, keep=0, most=1).close()
    assert revisions(tmp_path) == [1, 3]
    user.close()
    serve(tmp_path, 4, keep=0).close()
    assert revisions(tmp_path) == [4]


def test_a_deployment_at_zero_keeps_its_entry_beside_a_busy_one(tmp_path: Path) -> None:
    serve(tmp_path, 1, owner="space.asleep").close()
    for number in (2, 3, 4, 5, 6):
        serve(tmp_path, number, owner="space.busy", keep=1).close()
    assert revisions(tmp_path) == [1, 5, 6]


def test_an_entry_that_two_deployments_use_goes_with_the_last(tmp_path: Path) -> None:
    serve(tmp_path, 1, owner="space.one", keep=0).close()
    serve(tmp_path, 1, owner="space.two", keep=0).close()
    serve(tmp_path, 2, owner="space.one", keep=0).close()
    assert revisions(tmp_path) == [1, 2]
    serve(tmp_path, 3, owner="space.two", keep=0).close()
    assert revisions(tmp_path) == [2, 3]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("device_name", ("H100", "H200")),
        ("driver", ("580.95.05", "590.44.01")),
        ("engine_version", ("0.1.0", "0.2.0")),
    ],
)
def test_one_revision_may_use_several_entries(
    tmp_path: Path, field: str, values: tuple[str, str]
) -> None:
    """Its pods run on nodes with different GPUs or drivers, or with an engine that is rolled out
    and back: each finds its own graphs again."""

    def pod(value: str) -> Store:
        user = User("space.a", "r1")
        of = key(**{field: value})
        return store(tmp_path, of, retention=Retention(revisions=0), user=user)

    for value in values:
        first = pod(value)
        assert first.look_up().result is CacheResult.MISS
        assert first.publish([image(1, value.encode())], Plan()) == ""
        first.close()
    for value in values:
        again = pod(value)
        found = again.look_up()
        assert found.result is CacheResult.HIT
        assert plain(found.images) == plain([image(1, value.encode())])
        again.close()


def size_of_one(root: Path) -> int:
    return retention.stored_bytes(root / of_revision(1).digest())


def test_over_its_size_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    serve(tmp_path, 1).close()
    most = 3 * size_of_one(tmp_path) + 100
    for number in (2, 3, 1, 4):
        serve(tmp_path, number, most=most).close()
    assert revisions(tmp_path) == [1, 3, 4]


def test_over_its_size_the_newest_revision_of_each_deployment_goes_last(tmp_path: Path) -> None:
    serve(tmp_path, 1, owner="space.asleep").close()
    most = 3 * size_of_one(tmp_path) + 100
    for number in (2, 3, 4, 5):
        serve(tmp_path, number, owner="space.busy", most=most).close()
    assert revisions(tmp_path) == [1, 4, 5]


def test_a_bound_below_what_is_in_use_removes_nothing_of_it(tmp_path: Path) -> None:
    users = [serve(tmp_path, number, most=1) for number in (1, 2)]
    assert revisions(tmp_path) == [1, 2]
    for user in users:
        user.close()


def test_pruning_by_hand_goes_by_every_deployments_revisions(tmp_path: Path) -> None:
    for owner, numbers in (("space.one", (1, 2, 3)), ("space.two", (4, 5))):
        for number in numbers:
            serve(tmp_path, number, owner=owner).close()
    with locks.writing(tmp_path):
        removed = retention.prune(tmp_path, Retention(revisions=1))
    assert {path.name for path in removed} == {of_revision(1).digest()}
    with locks.writing(tmp_path):
        retention.prune(tmp_path, Retention(max_bytes=0))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_an_entry_that_nobody_has_a_mark_in_goes(tmp_path: Path) -> None:
    serve(tmp_path, 1).close()
    for mark in (tmp_path / of_revision(1).digest() / "users").iterdir():
        mark.unlink()
    serve(tmp_path, 2).close()
    assert revisions(tmp_path) == [2]


@pytest.mark.parametrize("junk", ["file", "link", "dangling", "empty folder", "folder"])
def test_what_stands_in_place_of_an_entry_is_removed(tmp_path: Path, junk: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("mine")
    root = tmp_path / "cache"
    serve(root, 2).close()
    place = root / of_revision(1).digest()
    match junk:
        case "file":
            place.write_text("x")
        case "link":
            place.symlink_to(elsewhere)
        case "dangling":
            place.symlink_to(tmp_path / "nothing")
        case "empty folder":
            place.mkdir()
        case "folder":
            (place / "images").mkdir(parents=True)
            (place / "images" / "link").symlink_to(elsewhere)
    serve(root, 1).close()
    again = store(root, of_revision(1))
    assert again.look_up().result is CacheResult.HIT
    assert (elsewhere / "precious").read_text() == "mine"
    assert sorted(path.name for path in root.iterdir()) == sorted(
        [".lock", of_revision(1).digest(), of_revision(2).digest()]
    )


def test_marks_with_strange_names_are_nobodys(tmp_path: Path) -> None:
    serve(tmp_path, 1).close()
    entry = tmp_path / of_revision(1).digest()
    for name in ("nobody", "a@b@c", ".hidden@r", "x@", "a b@r"):
        (entry / "users" / name).write_text("")
    assert set(marks.of(entry)) == {User("space.tiny", "r1")}


@pytest.mark.parametrize(
    "text", ["", "a", "a@", "@b", "../a@b", "a@../b", "a/b@c", "a@b@c", "a\n@b"]
)
def test_a_user_that_could_name_another_file_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not OWNER@REVISION"):
        User.parse(text)
