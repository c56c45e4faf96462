"""Damage anywhere in an entry is found, and who may have written it; whole starts over such entries
are in test_tampering.py."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.engine.store.entries import KEY, image, plain, store
from tests.engine.store.tampering import files
from warmgraph_api.report import CacheResult
from warmgraph_engine.store import trust, writing
from warmgraph_engine.store.layout import Plan


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    publisher = store(tmp_path)
    publisher.publish([image(1), image(2)], Plan())
    publisher.close()
    return tmp_path / KEY.digest()


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
