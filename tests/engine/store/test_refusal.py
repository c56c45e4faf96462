"""What the store does not trust, and the reason that it gives. A refusal never stops a start."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engine.store.entries import KEY, image, key, plain, store
from warmgraph_api.report import CacheResult
from warmgraph_engine.store import trust, writing
from warmgraph_engine.store.layout import Manifest, Plan


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    publisher = store(tmp_path)
    publisher.publish([image(1), image(2)], Plan())
    publisher.close()
    return tmp_path / KEY.digest()


def files(entry: Path) -> list[Path]:
    found = [*entry.glob("*.json"), *entry.glob("images/*"), *entry.glob("binaries/*")]
    return sorted(path for path in found if path.name != "plan.json")


def test_a_flipped_bit_in_any_file_is_found(entry: Path) -> None:
    for path in files(entry):
        good = path.read_bytes()
        for position in range(0, len(good), max(1, len(good) // 60)):
            bad = bytearray(good)
            bad[position] ^= 1
            path.write_bytes(bad)
            found = store(entry.parent).look_up()
            # A manifest survives a bit that carries no meaning, such as a space's.
            unharmed = path.name == "manifest.json" and found.result is CacheResult.HIT
            assert found.result is CacheResult.REFUSED or unharmed, (path, position)
            if unharmed:
                assert plain(found.images) <= plain([image(1), image(2)])
        path.write_bytes(good)
    assert store(entry.parent).look_up().result is CacheResult.HIT


def test_a_file_cut_short_at_any_length_is_found(entry: Path) -> None:
    for path in files(entry):
        good = path.read_bytes()
        for length in range(0, len(good), max(1, len(good) // 40)):
            path.write_bytes(good[:length])
            assert store(entry.parent).look_up().result is CacheResult.REFUSED, (path, length)
        path.write_bytes(good)


def test_a_missing_file_is_named(entry: Path) -> None:
    for path in files(entry):
        content = path.read_bytes()
        path.unlink()
        found = store(entry.parent).look_up()
        if path.name in ("key.json", "manifest.json"):
            assert found.result is CacheResult.MISS  # never completed, or half removed
        else:
            assert found.result is CacheResult.REFUSED
            assert path.name in found.message
        path.write_bytes(content)


def test_swapped_images_are_found(entry: Path) -> None:
    first, second = sorted((entry / "images").iterdir())
    content = first.read_bytes(), second.read_bytes()
    first.write_bytes(content[1])
    second.write_bytes(content[0])
    found = store(entry.parent).look_up()
    assert found.result is CacheResult.REFUSED
    assert "another checksum" in found.message


def test_an_entry_under_another_keys_name_is_refused(entry: Path) -> None:
    other = key(driver="999")
    entry.rename(entry.parent / other.digest())
    found = store(entry.parent, other).look_up()
    assert found.result is CacheResult.REFUSED
    assert "does not fit the name" in found.message


def _edit_manifest(entry: Path, edit: Callable[[Any], None]) -> None:
    """With a checksum that fits again, where it is still a manifest at all."""
    values = json.loads((entry / "manifest.json").read_text())
    edit(values)
    with suppress(msgspec.ValidationError):
        values = msgspec.to_builtins(msgspec.convert(values, Manifest).sealed())
    (entry / "manifest.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.update(format=2), "has format 2"),
        (lambda m: m.update(key="f" * 64), "belongs to another entry"),
        (lambda m: m["files"].update({"../../etc/passwd": m["files"]["key.json"]}), "no file of"),
        (lambda m: m["files"].update({"/etc/passwd": m["files"]["key.json"]}), "no file of"),
        (lambda m: m["files"].pop(m["images"][0]["file"]), "no checksum of"),
        (lambda m: m.pop("images"), "damaged"),
        (lambda m: m["images"][0].update(kind="unheard-of"), "damaged"),
    ],
)
def test_a_manifest_that_says_other_things_is_refused(
    entry: Path, edit: Callable[[Any], None], message: str
) -> None:
    _edit_manifest(entry, edit)
    found = store(entry.parent).look_up()
    assert found.result is CacheResult.REFUSED
    assert message in found.message


def test_a_flipped_bit_in_a_stored_answer_is_found(entry: Path) -> None:
    path = entry / "manifest.json"
    good = path.read_bytes()
    answer = image(2).answer
    assert answer is not None
    for value in (answer.asked, answer.digest):
        position = good.index(value.encode())
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        found = store(entry.parent).look_up()
        assert found.result is CacheResult.REFUSED
        assert "manifest.json is damaged: its checksum does not fit" in found.message


def test_what_everyone_can_write_is_refused(entry: Path) -> None:
    for path in [entry, *files(entry)]:
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode | stat.S_IWOTH)
        found = store(entry.parent).look_up()
        assert found.result is CacheResult.REFUSED
        assert "can be written by everyone" in found.message
        path.chmod(mode)


def test_a_link_or_a_pipe_in_place_of_a_file_is_refused(entry: Path) -> None:
    for number, path in enumerate(files(entry)):
        moved = path.rename(entry.parent / f"elsewhere-{number}")
        path.symlink_to(moved)
        assert store(entry.parent).look_up().result is CacheResult.REFUSED
        path.unlink()
        os.mkfifo(path)
        assert store(entry.parent).look_up().result is CacheResult.REFUSED
        path.unlink()
        moved.rename(path)


def facts(uid: int, gid: int, mode: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


def test_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(os, "getegid", lambda: 0)
    monkeypatch.setattr(os, "getgroups", lambda: [2000])
    path = Path("x")
    trust.check(facts(1001, 5, 0o640), path)
    trust.check(facts(0, 5, 0o644), path)
    trust.check(facts(1001, 2000, 0o660), path)  # as Kubernetes leaves it for an fsGroup
    with pytest.raises(trust.RefusalError, match="belongs to user 1002, not to 1001 or root"):
        trust.check(facts(1002, 2000, 0o640), path)
    with pytest.raises(trust.RefusalError, match="group 7"):
        trust.check(facts(1001, 7, 0o660), path)
    with pytest.raises(trust.RefusalError, match="everyone"):
        trust.check(facts(1001, 2000, 0o666), path)


def test_a_refused_entry_is_replaced_by_a_sound_one(entry: Path) -> None:
    files(entry)[0].write_bytes(b"x")
    writer = store(entry.parent)
    assert writer.look_up().result is CacheResult.REFUSED
    assert writer.publish([image(4)], Plan()) == ""
    found = store(entry.parent).look_up()
    assert found.result is CacheResult.HIT
    assert plain(found.images) == plain([image(4)])
    assert {p.name for p in entry.parent.iterdir()} == {".lock", entry.name}


def test_a_full_disk_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def fail(path: Path, data: bytes) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(data)

    monkeypatch.setattr(writing, "_write_file", fail)
    reason = store(tmp_path).publish([image(1)], Plan())
    assert "No space left on device" in reason
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_what_does_not_read_back_as_it_was_written_gets_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = writing._write_file

    def write_badly(path: Path, data: bytes) -> None:
        bad = path.name.startswith("decode-2-")
        write(path, data[:-1] + bytes([data[-1] ^ 1]) if bad else data)

    monkeypatch.setattr(writing, "_write_file", write_badly)
    assert "another checksum" in store(tmp_path).publish([image(1), image(2)], Plan())
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]
    assert store(tmp_path).publish([image(1)], Plan()) == ""
    assert "another checksum" in store(tmp_path).publish([image(2)], Plan())
    found = store(tmp_path).look_up()
    assert found.result is CacheResult.HIT
    assert plain(found.images) == plain([image(1)])


def test_a_place_that_cannot_be_a_folder_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", Path("/proc/nothing/here")):
        assert store(root).publish([image(1)], Plan()) != ""
        assert store(root).look_up().result in (CacheResult.MISS, CacheResult.REFUSED)
