"""The small pure parts: names, records, archives, messages."""

import json
import tarfile
from pathlib import Path

import pytest

from devcluster import gobuild, health, images, ociarchive, pods, record, wait
from devcluster.errors import DevclusterError
from devcluster.paths import Layout
from devcluster.process import Identity


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("localhost/warmgraph-engine:dev", "localhost:5050/warmgraph-engine:dev"),
        ("warmgraph-engine", "localhost:5050/warmgraph-engine:latest"),
        ("registry.example:5000/team/engine:1", "localhost:5050/team/engine:1"),
        ("team/engine:1", "localhost:5050/team/engine:1"),
    ],
)
def test_image_is_named_after_our_registry(image: str, expected: str) -> None:
    assert images.reference(image) == expected


def test_record_survives_being_written_and_read(tmp_path: Path) -> None:
    identity = Identity(1, 2, "boot")
    kept = record.Record(
        full=True,
        ports={"etcd": 1},
        fake_gpus=2,
        owner=identity,
        processes={"etcd": record.Started(identity, "print")},
    )
    record.save(tmp_path / "cluster.json", kept)
    assert record.load(tmp_path / "cluster.json") == kept


def test_damaged_record_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(DevclusterError, match="damaged"):
        record.load(tmp_path / "cluster.json")


@pytest.mark.parametrize("name", ["", "../up", "Upper", "a" * 32])
def test_cluster_name_that_is_no_plain_word_is_refused(name: str) -> None:
    with pytest.raises(DevclusterError, match="no cluster name"):
        Layout.of(name)


def test_image_archive_names_its_image_and_every_blob(tmp_path: Path) -> None:
    binary = tmp_path / "pause"
    binary.write_bytes(b"program")
    ociarchive.write(tmp_path / "pause.tar", image="localhost/pause:1", binary=binary)
    with tarfile.open(tmp_path / "pause.tar") as tar:
        files = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/pause:1"
    manifest = json.loads(files[f"blobs/{entry['digest'].replace(':', '/')}"])
    for part in (manifest["config"], *manifest["layers"]):
        assert len(files[f"blobs/{part['digest'].replace(':', '/')}"]) == part["size"]


def test_compiled_packages_are_told_from_messages() -> None:
    assert gobuild.is_package("k8s.io/api/core/v1")
    assert not gobuild.is_package("go: downloading k8s.io/api v0.37.2")
    assert not gobuild.is_package("./main.go:3:1: syntax error")


def test_dns_question_is_well_formed() -> None:
    assert health.dns_query("a.bc") == (
        b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x02bc\x00\x00\x01\x00\x01"
    )


def test_inner_mounts_are_unmounted_first() -> None:
    mountinfo = "\n".join(
        f"{number} 1 0:1 / {point} rw - tmpfs tmpfs rw"
        for number, point in enumerate(["/", "/c/a", "/c/a/b\\040c", "/cc"])
    )
    assert pods.mounts_below(Path("/c"), mountinfo) == ["/c/a/b c", "/c/a"]


def test_wait_that_fails_says_why_and_shows_the_log(tmp_path: Path) -> None:
    log = tmp_path / "some.log"
    log.write_text("first\nlast words\n")
    with pytest.raises(DevclusterError, match=r"(?s)no answer yet.*last words"):
        wait.wait_for("some", lambda: "no answer yet", timeout_seconds=0, log=log)


def test_wait_ends_when_the_process_has_died() -> None:
    with pytest.raises(DevclusterError, match="its process ended"):
        wait.wait_for("some", lambda: "no answer", timeout_seconds=60, alive=lambda: False)


def test_wait_takes_a_refusal_for_a_reason() -> None:
    answers = iter([DevclusterError("not yet"), None])

    def check() -> None:
        if (answer := next(answers)) is not None:
            raise answer

    wait.wait_for("some", check, timeout_seconds=60)
