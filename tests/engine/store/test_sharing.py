"""Several engines on one volume: of one node, of several nodes, of several users."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.store import processes
from tests.engine.store.entries import KEY, image, key, plain, store
from warmgraph_api.report import CacheResult
from warmgraph_engine.store import locks
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.policy import Retention, User


def _publish(root: Path, number: int) -> None:
    assert store(root).publish([image(number, b"from %d" % number)], Plan()) == ""


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_publish, args=(tmp_path, n)) for n in range(1, 7)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 6
    found = store(tmp_path).look_up()
    assert plain(found.images) == plain(image(n, b"from %d" % n) for n in range(1, 7))


def test_who_looks_at_an_entry_in_passing_costs_no_start_its_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`warmgraph cache ls` asks whether somebody holds it, and for that holds it for a moment."""
    writer = store(tmp_path)
    writer.publish([image(1)], Plan())
    writer.close()
    monkeypatch.setattr(locks, "USE_WAIT_SECONDS", 30.0)
    with locks.removing(tmp_path / KEY.digest()):
        found: list[Any] = []
        starting = threading.Thread(target=lambda: found.append(store(tmp_path).look_up()))
        starting.start()
        starting.join(0.1)
        assert found == [], "it waits"
    starting.join()
    assert found[0].result is CacheResult.HIT


def test_what_a_killed_writer_left_under_a_name_does_not_keep_an_entry_from_growing(
    tmp_path: Path,
) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    for root in (first, other):
        root.mkdir()
        store(root).publish([image(1)], Plan())
    store(other).publish([image(2)], Plan())
    entry = first / KEY.digest()
    (name,) = (p.name for p in (other / entry.name / "images").iterdir() if "-2-" in p.name)
    (entry / "images" / name).write_bytes(b"half of a graph")
    assert store(first).publish([image(2)], Plan()) == ""
    assert plain(store(first).look_up().images) == plain([image(1), image(2)])


READER = """
import sys
from pathlib import Path
from tests.engine.store.entries import store
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    found = store(Path(sys.argv[1])).look_up()
    print(found.result, found.message, flush=True)
"""


def test_a_reader_beside_a_writer_always_finds_a_whole_entry(tmp_path: Path) -> None:
    """The writer records the same buckets anew all the time, and removes what they replace."""
    writer = store(tmp_path)
    writer.publish([image(1), image(2)], Plan())
    readers = [processes.run(READER, tmp_path, 150) for _ in range(2)]
    number = 0
    while any(reader.poll() is None for reader in readers):
        number += 1
        assert writer.publish([image(1, b"%d" % number), image(2, b"%d" % number)], Plan()) == ""
    for reader in readers:
        output, _ = reader.communicate()
        _, *lines = output.splitlines()
        assert lines == ["Hit "] * 150


def test_a_writer_that_holds_the_lock_for_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.1)
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.writing(tmp_path):
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        assert "another process has been writing" in store(tmp_path).publish([image(1)], Plan())
    finally:
        release.set()
        holder.join()


@pytest.fixture
def nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks as flock(2) describes them for NFS: an exclusive one needs a descriptor to write."""
    flock = fcntl.flock

    def of_nfs(descriptor: int, operation: int) -> None:
        writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        if operation & fcntl.LOCK_EX and not writable:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", of_nfs)


@pytest.mark.usefixtures("nfs")
def test_a_network_file_system_keeps_prunes_and_restores(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        engine = store(
            tmp_path,
            key(model_revision=f"v{number}"),
            user=User("space.tiny", f"r{number}"),
            retention=Retention(revisions=1),
        )
        assert engine.publish([image(1)], Plan()) == ""
        engine.close()
    found = [store(tmp_path, key(model_revision=f"v{n}")).look_up().result for n in (1, 2, 3)]
    assert found == [CacheResult.MISS, CacheResult.HIT, CacheResult.HIT]


def test_a_volume_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path).publish([image(1)], Plan())

    def none(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    found = store(tmp_path).look_up()
    assert (found.result, "No locks available" in found.message) == (CacheResult.REFUSED, True)
    assert "No locks available" in store(tmp_path).publish([image(1)], Plan())


# --- users ------------------------------------------------------------------------------------

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to work as other users")

GROUP = 2000
"""As a pod's fsGroup: every file of the volume belongs to it, and every process is in it."""


@pytest.fixture
def volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume as Kubernetes mounts it for an fsGroup."""
    root = Path(tmp_path_factory.mktemp("volume"))
    for folder in (root, root.parent, root.parent.parent):
        folder.chmod(0o755)
    os.chown(root, 0, GROUP)
    root.chmod(0o2775)
    return root


def as_user(uid: int, work: Callable[[], Any]) -> Any:
    """What `work` returns when a process of this user does it; the user needs no name."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        os.setgroups([GROUP])
        os.setgid(0)
        os.setuid(uid)
        theirs.send(work())

    process = context.Process(target=child)
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()
        ours.close()


def hit_or_why(root: Path, of: Any = KEY) -> tuple[str, str]:
    found = store(root, of).look_up()
    return found.result, found.message


@as_root
def test_a_random_user_id_finds_what_it_left(volume: Path) -> None:
    assert as_user(1_234_560_000, lambda: store(volume).publish([image(1)], Plan())) == ""
    assert as_user(1_234_560_000, lambda: hit_or_why(volume)) == ("Hit", "")


@as_root
def test_what_another_user_wrote_is_refused_and_replaced(volume: Path) -> None:
    """And what it wrote for other keys is left alone: only its owner could remove it."""
    for of in (KEY, key(model_revision="other")):
        assert as_user(1001, lambda of=of: store(volume, of).publish([image(1)], Plan())) == ""
    result, message = as_user(1002, lambda: hit_or_why(volume))
    assert result == "Refused"
    assert "belongs to user 1001, not to 1002 or root" in message
    none = Retention(revisions=0, max_bytes=0)
    publish = lambda: store(volume, retention=none).publish([image(2)], Plan())  # noqa: E731
    assert as_user(1002, publish) == ""
    assert as_user(1002, lambda: hit_or_why(volume)) == ("Hit", "")
    assert as_user(1001, lambda: hit_or_why(volume, key(model_revision="other"))) == ("Hit", "")
    # The owner's next publish clears away what the other could not remove.
    assert as_user(1001, lambda: store(volume, key(model_revision="x")).publish([], Plan())) == ""
    assert [p.name for p in volume.iterdir() if p.name.startswith(".trash")] == []


@as_root
def test_a_folder_that_may_not_be_written_has_a_reason(volume: Path) -> None:
    volume.chmod(0o755)
    reason = as_user(1001, lambda: store(volume).publish([image(1)], Plan()))
    assert "Permission denied" in reason
    assert as_user(1001, lambda: hit_or_why(volume)) == ("Miss", "the cache has no entry yet")
