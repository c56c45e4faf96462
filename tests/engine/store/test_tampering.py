"""Trying hard to make a restored graph serve another answer.

Every case is a whole start over an entry that somebody changed. Each must say Refused with a
reason, in the report and in the metrics, capture what it lacks, answer as if there were no cache,
and leave an entry that the next start restores.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.engine.checkpoints import write_servable_checkpoint
from tests.engine.store.engines import Engine
from tests.engine.store.tampering import document, edit_manifest, files, replace_document, rewrite
from warmgraph_api.cachekey import CacheKey
from warmgraph_api.report import CacheResult
from warmgraph_engine.store import layout, trust

DAMAGE = "damaged|checksum|bytes instead of|does not fit the name|another format"


@dataclass(frozen=True, kw_only=True)
class House:
    """A model, an entry of its graphs, and what it answers."""

    model: Path
    cache: Path
    entry: Path
    answers: bytes


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The number of threads decides the order of sums, and with it the last bit."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.set_num_threads(1)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> House:
    folder = tmp_path_factory.mktemp("house")
    model, cache = write_servable_checkpoint(folder / "model"), folder / "cache"
    first = Engine(model, cache)
    first.publish()
    answers = first.answers()
    first.close()
    return House(model=model, cache=cache, entry=cache / first.report.cache.key, answers=answers)


@pytest.fixture
def house(original: House, tmp_path: Path) -> House:
    """Its own copy of the cache, to be broken."""
    cache = tmp_path / "cache"
    shutil.copytree(original.cache, cache)
    return House(
        model=original.model,
        cache=cache,
        entry=cache / original.entry.name,
        answers=original.answers,
    )


def refused(house: House, message: str, *, field: str | None = "") -> None:
    """All that a refusal must be; see the module. `field`: of the key, None for any."""
    engine = Engine(house.model, house.cache)
    try:
        cache = engine.report.cache
        assert cache.result is CacheResult.REFUSED, cache
        assert re.search(message, cache.message), cache.message
        assert field is None or cache.field == field
        assert set(engine.states().values()) <= {"Captured", "Restored"}
        assert engine.answers() == house.answers
        assert f'field="{cache.field}"' in engine.metrics()
        assert 'result="Refused"' in engine.metrics()
        engine.publish()
        assert engine.report.cache.published
    finally:
        engine.close()
    again = Engine(house.model, house.cache)
    assert again.report.cache.result is CacheResult.HIT, again.report.cache
    assert set(again.states().values()) == {"Restored"}
    assert again.answers() == house.answers
    again.close()


def test_an_entry_that_nobody_touched_is_restored(house: House) -> None:
    engine = Engine(house.model, house.cache)
    assert engine.report.cache.result is CacheResult.HIT
    assert engine.answers() == house.answers
    assert 'result="Hit"' in engine.metrics()
    engine.close()


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["key.json", "manifest.json", "decode-4", "prefill-16"])
@pytest.mark.parametrize("place", [0.02, 0.4, 0.97])
def test_a_flipped_byte(house: House, part: str, place: float) -> None:
    """In the key, the field that it fell into is named."""
    path = house.entry / part if part.endswith(".json") else document(house.entry, part)
    data = bytearray(path.read_bytes())
    # Where a letter or digit is: a space of the manifest carries no meaning.
    offset = next(i for i in range(int(len(data) * place), len(data)) if chr(data[i]).isalnum())
    data[offset] ^= 0x11
    path.write_bytes(data)
    refused(house, DAMAGE, field=None)


@pytest.mark.parametrize("part", ["key.json", "manifest.json", "decode-1"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_write(house: House, part: str, share: float) -> None:
    path = house.entry / part if part.endswith(".json") else document(house.entry, part)
    os.truncate(path, int(path.stat().st_size * share))
    refused(house, DAMAGE)


def test_zeros_where_data_was_not_written_back(house: House) -> None:
    """What a file system may leave after a power cut, where fsync was not kept."""
    path = document(house.entry, "decode-2")
    path.write_bytes(bytes(path.stat().st_size))
    refused(house, "another checksum")


def test_a_missing_graph(house: House) -> None:
    document(house.entry, "decode-2").unlink()
    refused(house, r"decode-2-\w+\.json is missing")


# --- swaps ------------------------------------------------------------------------------------


def test_two_graphs_whose_contents_changed_places(house: House) -> None:
    one, other = document(house.entry, "decode-1"), document(house.entry, "decode-4")
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    refused(house, "bytes instead of|another checksum")


def test_two_graphs_that_a_manifest_gives_to_each_others_buckets(house: House) -> None:
    def swap(manifest: Any) -> None:
        by_size = {image["size"]: image for image in manifest["images"]}
        one, other = by_size[1], by_size[4]
        one["file"], other["file"] = other["file"], one["file"]

    edit_manifest(house.entry, swap)
    refused(house, r"gives decode \d the graph images/decode-\d")


def test_a_graph_stored_as_that_of_another_bucket_under_its_own_name(house: House) -> None:
    replace_document(house.entry, "decode-1", document(house.entry, "decode-4").read_bytes())
    refused(house, "stored graph of decode 1 is of bucket decode 4; 3 of 4 declared")


@pytest.fixture(scope="module")
def other(original: House, tmp_path_factory: pytest.TempPathFactory) -> House:
    """Another model of the same shape, and its entry."""
    folder = tmp_path_factory.mktemp("other")
    model = write_servable_checkpoint(folder / "model", seed=4)
    first = Engine(model, folder / "cache")
    first.publish()
    answers = first.answers()
    first.close()
    entry = folder / "cache" / first.report.cache.key
    assert answers != original.answers
    return House(model=model, cache=folder / "cache", entry=entry, answers=answers)


def test_the_entry_of_another_model_under_our_name(house: House, other: House) -> None:
    shutil.rmtree(house.entry)
    shutil.copytree(other.entry, house.entry)
    refused(
        house, "does not fit the name of its folder: model_weights", field="model_weights_digest"
    )


def test_graphs_of_another_model_behind_our_key(house: House, other: House) -> None:
    for name in ("manifest.json", "images"):
        path = house.entry / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        source = other.entry / name
        shutil.copytree(source, path) if source.is_dir() else shutil.copy(source, path)
    refused(house, "belongs to another entry")


def test_other_weights_in_the_same_folder_under_the_same_revision(
    house: House, other: House, tmp_path: Path
) -> None:
    """No refusal but a miss: the entry is sound, and stays for whoever goes back."""
    model = tmp_path / "model"
    shutil.copytree(house.model, model)
    shutil.copy(other.model / "model.safetensors", model / "model.safetensors")
    engine = Engine(model, house.cache)
    cache = engine.report.cache
    assert (cache.result, cache.field) == (CacheResult.MISS, "model_weights_digest")
    assert engine.answers() == other.answers
    engine.close()
    back = Engine(house.model, house.cache)
    assert back.report.cache.result is CacheResult.HIT
    assert back.answers() == house.answers
    back.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("driver", "999.1"),
        ("device_name", "NVIDIA H100"),
        ("device_architecture", "sm_100"),
        ("engine_version", "9.9.9"),
        ("speculative_tokens", 5),
    ],
)
def test_a_key_that_was_edited_names_the_field(house: House, field: str, value: Any) -> None:
    rewrite(house.entry / "key.json", lambda key: key.update({field: value}))
    refused(house, f"does not fit the name of its folder: {field} is", field=field)


@pytest.mark.parametrize(("field", "value"), [("driver", "999.1"), ("device_name", "NVIDIA H100")])
def test_an_entry_of_another_driver_or_gpu_under_our_name(
    house: House, field: str, value: str
) -> None:
    """Whole and sound, but for the folder that it lies in."""
    key = msgspec.json.decode((house.entry / "key.json").read_bytes(), type=CacheKey)
    theirs = msgspec.structs.replace(key, **{field: value})
    text = msgspec.json.format(msgspec.json.encode(theirs))
    (house.entry / "key.json").write_bytes(text)

    def edit(manifest: Any) -> None:
        manifest["key"] = theirs.digest()
        manifest["files"]["key.json"] = {"sha256": layout.sha256(text), "bytes": len(text)}

    edit_manifest(house.entry, edit)
    refused(house, f"{field} is .*, stored graphs have {value}", field=field)


# --- programs whose checksums fit -------------------------------------------------------------


def _replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        assert old in content
        return content.replace(old, new)

    return edit


def _keeps_no_keys(content: bytes) -> bytes:
    """What the step itself has to write is there already, if eager execution ran before it."""
    program = json.loads(content)
    kept = [node for node in program["nodes"] if node["op"] != "warmgraph.store_kv.default"]
    assert len(kept) < len(program["nodes"])
    return json.dumps({**program, "nodes": kept}).encode()


def _writes_to_the_model(content: bytes) -> bytes:
    """If it ran but once, even for the check, no answer of this process would be right again."""
    program = json.loads(content)
    node = {"op": "aten.mul_.Tensor", "args": [{"region": "weights.norm"}, 2.0]}
    program["nodes"].append(node)
    return json.dumps(program).encode()


def _lists_no_norm(content: bytes) -> bytes:
    """Nobody could compare its type and shape."""
    program = json.loads(content)
    del program["regions"]["weights.norm"]
    return json.dumps(program).encode()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_replaced(b"aten.silu.default", b"aten.gelu.default"), "is recorded anew: its logits"),
        (_replaced(b"layers.0.q", b"layers.1.q"), "is recorded anew: its logits"),
        (_replaced(b"aten.silu.default", b"aten.from_file.default"), "has an unusable node"),
        (_replaced(b'"format":1', b'"format":2'), "has format 2; this engine reads 1"),
        (_replaced(b"weights.norm", b"weights.other"), "refers to weights.other, which this model"),
        (_keeps_no_keys, "is recorded anew: its logits"),
        (_lists_no_norm, "has an unusable node: it does not list the region weights.norm"),
        (_writes_to_the_model, "has an unusable node: aten.mul_.Tensor writes to weights.norm"),
        (_replaced(b'"nodes":[', b'"nodes":[' + b"[" * 100_000), "is damaged"),
        (_replaced(b'"args":[', b'"args":[' + b"[" * 100_000), "is damaged"),
        (lambda content: content[: len(content) // 2], "is damaged"),
        (lambda content: b"", "is damaged"),
        (lambda content: b"\xff\xfe" + content, "is damaged"),
    ],
)
def test_a_program_that_was_changed_with_its_checksums(
    house: House, edit: Callable[[bytes], bytes], message: str
) -> None:
    content = document(house.entry, "decode-4").read_bytes()
    replace_document(house.entry, "decode-4", edit(content))
    refused(house, f"stored graph of decode 4 {message}")


def test_a_stored_answer_that_was_changed_with_its_checksum_decides_nothing(house: House) -> None:
    """Eager execution is asked instead, and the answer is put right."""

    def edit(manifest: Any) -> None:
        for image in manifest["images"]:
            image["answer"]["digest"] = "0" * 64

    edit_manifest(house.entry, edit)
    engine = Engine(house.model, house.cache)
    assert engine.report.cache.result is CacheResult.HIT
    assert "4 in full (4 gave another answer than the stored one)" in engine.report.check.message
    assert engine.answers() == house.answers
    engine.publish()
    engine.close()
    again = Engine(house.model, house.cache)
    assert again.report.check.message == "4 by stored answer, 0 in full"
    again.close()


# --- manifests whose checksum fits --------------------------------------------------------------


def _first_image(manifest: Any) -> Any:
    return manifest["images"][0]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.update(format=2), "has format 2"),
        (lambda m: m.update(key="f" * 64), "belongs to another entry"),
        (lambda m: m["files"].update({"../../etc/passwd": m["files"]["key.json"]}), "no file of"),
        (lambda m: m["files"].update({"/etc/passwd": m["files"]["key.json"]}), "no file of"),
        (lambda m: m["files"].update({"images/../key.json": m["files"]["key.json"]}), "no file of"),
        (lambda m: m["files"].update({"images/a\0b": m["files"]["key.json"]}), "no file of"),
        (lambda m: m["files"].update({"users/x": m["files"]["key.json"]}), "no file of"),
        (lambda m: _first_image(m).update(file="../key.json"), "no checksum of"),
        (lambda m: _first_image(m).update(file="key.json"), "the graph key.json"),
        (lambda m: _first_image(m).update(binaries=["0" * 64]), "no checksum of binaries/0000"),
        (
            lambda m: m["files"].update({f"binaries/{'0' * 64}": m["files"]["key.json"]}),
            "the content of another binary",
        ),
        (lambda m: m["images"].append(dict(_first_image(m))), "has two graphs of decode"),
        (lambda m: _first_image(m).update(size=3), "gives decode 3 the graph"),
        (lambda m: _first_image(m).update(size=-1), "gives decode -1 the graph"),
        (lambda m: m["files"]["key.json"].update(bytes=1 << 60), "bytes instead of"),
        (lambda m: m.pop("images"), "damaged"),
        (lambda m: m.update(more=1), "damaged"),
    ],
)
def test_a_manifest_that_says_other_things(
    house: House, edit: Callable[[Any], None], message: str
) -> None:
    edit_manifest(house.entry, edit)
    refused(house, message)


@pytest.mark.parametrize("name", ["key.json", "manifest.json"])
@pytest.mark.parametrize("content", [b"[" * 1_000_000, b'{"a":' * 1_000_000, b"", b"null", b"\xff"])
def test_json_that_is_none_of_ours(house: House, name: str, content: bytes) -> None:
    (house.entry / name).write_bytes(content)
    refused(house, "damaged or of another format")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 1_000_000,
        b'{"buckets": [{"kind": "decode", "size": 1, "hits": -5}]}',
        b'{"buckets": [{"kind": "decode", "size": 4, "hits": 9223372036854775807}]}',
        b'{"buckets": [{"kind": "sideways", "size": 4}]}',
        b'{"buckets": [{"kind": "decode", "size": 4, "milliseconds": 1e300}], "other": [[[1]]]}',
    ],
)
def test_a_plan_of_nonsense_costs_nothing_but_its_advice(house: House, content: bytes) -> None:
    (house.entry / "plan.json").write_bytes(content)
    engine = Engine(house.model, house.cache)
    assert engine.report.cache.result is CacheResult.HIT
    assert engine.answers() == house.answers
    engine.publish()
    assert "not stored" not in engine.report.cache.message
    engine.close()


# --- what stands in place of a file -----------------------------------------------------------


def _parts(house: House) -> Iterator[Path]:
    yield from files(house.entry)
    yield house.entry / "images"
    yield house.entry


@pytest.mark.parametrize("number", range(8))
def test_a_symbolic_link(house: House, tmp_path: Path, number: int) -> None:
    """Also one that leads to the very same content."""
    path = list(_parts(house))[number % len(list(_parts(house)))]
    path.symlink_to(path.rename(tmp_path / "elsewhere"))
    refused(
        house, f"{path.name} is a symbolic link, which is not followed|Too many levels|Not a dir"
    )


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
@pytest.mark.parametrize("name", ["key.json", "manifest.json", "decode-1"])
def test_something_that_is_no_file(
    house: House, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = house.entry / name if name.endswith(".json") else document(house.entry, name)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        monkeypatch.chdir(path.parent)  # a socket's path has 107 bytes at most
        server = socket.socket(socket.AF_UNIX)
        server.bind(path.name)
        server.close()
    refused(house, "is not a plain file|No such device or address|Is a directory")


@pytest.mark.parametrize("name", ["key.json", "manifest.json", "decode-1"])
def test_a_file_of_a_terabyte_is_not_read(house: House, name: str) -> None:
    path = house.entry / name if name.endswith(".json") else document(house.entry, name)
    os.truncate(path, 1 << 40)
    refused(house, "which no such file has")


def test_a_terabyte_that_the_manifest_admits_is_not_read_either(house: House) -> None:
    path = document(house.entry, "decode-1")
    os.truncate(path, trust.MOST_BYTES + 1)

    def edit(manifest: Any) -> None:
        manifest["files"][f"images/{path.name}"]["bytes"] = trust.MOST_BYTES + 1

    edit_manifest(house.entry, edit)
    refused(house, "which no such file has")


# --- who could have written it ----------------------------------------------------------------


@pytest.mark.parametrize("number", range(7))
def test_what_everyone_can_write(house: House, number: int) -> None:
    parts = list(_parts(house))
    path = parts[number % len(parts)]
    path.chmod(path.stat().st_mode | 0o002)
    refused(house, f"{path.name} can be written by everyone")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to others")
@pytest.mark.parametrize("name", ["key.json", "manifest.json", "decode-1", "images", ""])
def test_what_belongs_to_another_user(house: House, name: str) -> None:
    path = document(house.entry, name) if name.startswith("decode") else house.entry / name
    os.chown(path, 12_345, 0)
    refused(house, "belongs to user 12345, not to 0 or root")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to others")
def test_what_a_group_that_is_not_ours_can_write(house: House) -> None:
    path = document(house.entry, "decode-1")
    os.chown(path, 0, 54_321)
    path.chmod(0o660)
    refused(house, "can be written by group 54321, which is not ours")
