"""Volumes that are full, too small or read-only: serving goes on, and the reason is told."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.store.entries import KEY, image, key, plain, store
from warmgraph_api.report import CacheResult
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.cli import main
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.policy import User

PAGE = 4096
PAGES = 256


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", f"size={PAGE * PAGES},mode=755", "tmpfs", folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a file system cannot be mounted here: {error}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def leave_free(disk: Path, pages: int) -> None:
    filler = disk / "filler"
    filler.write_bytes(b"")
    free = _free_pages(disk)
    filler.write_bytes(bytes(PAGE * (free - pages)))
    assert _free_pages(disk) == pages


def _free_pages(disk: Path) -> int:
    return os.statvfs(disk).f_bavail


def big(size: int, content: bytes = b"graph") -> GraphImage:
    """Of some pages, so that a disk can fill up in the middle of it."""
    return image(size, content * (3 * PAGE // len(content)))


def test_a_disk_that_fills_up_at_any_page_leaves_all_or_nothing(disk: Path) -> None:
    images = [big(1), big(2)]
    results = []
    for pages in range(24):
        leave_free(disk, pages)
        root = disk / f"cache-{pages}"
        writer = store(root)
        reason = writer.publish(images, Plan())
        found = store(root).look_up()
        results.append(found.result)
        if reason:
            assert "No space left on device" in reason
            assert found.result is CacheResult.MISS, found.message
            left = {path.name for path in root.iterdir()} if root.exists() else set()
            assert left <= {".lock"}
        else:
            assert plain(found.images) == plain(images)
        writer.close()
        subprocess.run(["rm", "-rf", root], check=True)
    assert results[0] is CacheResult.MISS
    assert results[-1] is CacheResult.HIT


def test_an_entry_that_cannot_grow_stays_as_it_was(disk: Path) -> None:
    root = disk / "cache"
    first = [big(1)]
    assert store(root).publish(first, Plan()) == ""
    grown = 0
    for pages in range(16):
        leave_free(disk, pages)
        reason = store(root).publish([big(2, b"%d" % pages)], Plan())
        found = store(root).look_up()
        assert found.result is CacheResult.HIT, found.message
        if reason:
            assert "No space left on device" in reason
            assert plain(first) <= plain(found.images)
        else:
            grown += 1
            assert plain(found.images) == plain([*first, big(2, b"%d" % pages)])
    assert grown > 0


def test_a_disk_with_room_again_is_used_again(disk: Path) -> None:
    root, engine = disk / "cache", store(disk / "cache")
    leave_free(disk, 2)
    assert "No space left on device" in engine.publish([big(1)], Plan())
    (disk / "filler").unlink()
    assert engine.publish([big(1)], Plan()) == ""
    assert store(root).look_up().result is CacheResult.HIT


def test_a_volume_smaller_than_retention_believes_makes_room(disk: Path) -> None:
    """The least recently used goes; a bound of 1 GiB would never be reached."""
    root = disk / "cache"
    for number in range(1, 9):
        content = [image(1, bytes([number]) * (60 * PAGE))]
        user = User("space.tiny", f"r{number}")
        engine = store(root, key(model_revision=f"v{number}"), user=user)
        assert engine.publish(content, Plan()) == "", number
        engine.close()
    newest = store(root, key(model_revision="v8")).look_up()
    assert newest.result is CacheResult.HIT
    assert store(root, key(model_revision="v1")).look_up().result is CacheResult.MISS


def test_a_read_only_volume_is_read_and_says_why_nothing_is_stored(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = disk / "cache"
    writer = store(root)
    writer.publish([image(1)], Plan())
    writer.close()
    mount("-o", "remount,ro", disk)
    engine = store(root)
    assert engine.look_up().result is CacheResult.HIT
    assert "Read-only file system" in engine.publish([image(2)], Plan())
    assert "Read-only file system" in store(root, key(torch="x")).publish([image(2)], Plan())
    assert store(disk / "not there").publish([image(1)], Plan()).endswith("Read-only file system")
    engine.close()

    for action in ("ls", "verify"):
        assert main(["cache", action, str(root)]) == 0
    assert main(["cache", "show", str(root), KEY.digest()[:8]]) == 0
    assert KEY.digest()[:12] in capsys.readouterr().out
    assert main(["cache", "prune", str(root), "--max-size", "0"]) == 1
    assert "Read-only file system" in capsys.readouterr().err


def limited(size: int, work: Callable[[], Any]) -> Any:
    """What `work` returns in a process that may write files of this many bytes at most."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        theirs.send(work())

    process = context.Process(target=child)
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()
        ours.close()


def test_a_file_that_may_not_be_as_large_leaves_nothing(tmp_path: Path) -> None:
    reason = limited(2 * PAGE, lambda: store(tmp_path).publish([image(1), big(2)], Plan()))
    assert "File too large" in reason
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
