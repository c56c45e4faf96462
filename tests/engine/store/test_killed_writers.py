"""Engines that are killed at any moment leave entries that load, or none."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from tests.engine.store import processes
from tests.engine.store.entries import KEY, image, key, store
from warmgraph_api.report import CacheResult
from warmgraph_engine.store import maintenance
from warmgraph_engine.store.layout import Plan

ROUNDS = 15

WRITER = """
import sys
from pathlib import Path
from tests.engine.store.entries import image, store
from warmgraph_engine.store.layout import Plan
writer = store(Path(sys.argv[1]))
print("ready", flush=True)
number = 0
while True:
    number += 1
    writer.publish([image(1 + number % 5, b"%d" % number)], Plan())
    print(number, flush=True)
"""

PRUNING_WRITER = """
import sys
from pathlib import Path
from tests.engine.store.entries import image, key, store
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.policy import Retention, User
number = int(sys.argv[2])
while True:
    number = 1 + number % 4
    user = User("space.tiny", f"r{number}")
    of = key(model_revision=f"v{number}")
    engine = store(Path(sys.argv[1]), of, user=user, retention=Retention(revisions=1))
    engine.look_up()
    engine.publish([image(1), image(2)], Plan())
    engine.close()
    print(number, flush=True)
"""


def kill_somewhere(writer: subprocess.Popen[str], chance: random.Random) -> None:
    """Some rounds end within the first publish, some within a later one; where in it is up to the
    machine."""
    assert writer.stdout is not None
    for _ in range(chance.randint(1, 6)):
        writer.stdout.readline()
    for _ in range(chance.randint(0, 20_000)):
        pass
    writer.kill()
    writer.stdout.close()
    writer.wait()


def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(7)
    hits = 0
    for _ in range(ROUNDS):
        kill_somewhere(processes.run(WRITER, tmp_path), chance)
        found = store(tmp_path).look_up()
        assert found.result in (CacheResult.HIT, CacheResult.MISS), found.message
        hits += found.result is CacheResult.HIT
    assert hits >= ROUNDS // 2
    last = store(tmp_path)
    assert last.publish([image(8)], Plan()) == ""
    assert store(tmp_path).look_up().result is CacheResult.HIT
    assert {path.name for path in tmp_path.iterdir()} == {".lock", KEY.digest()}
    assert list((tmp_path / KEY.digest()).rglob("*.new")) == []


def test_kill_9_among_engines_that_publish_and_prune_together(tmp_path: Path) -> None:
    """Three at a time, over four revisions of which two are kept; then no entry is refused, and
    whoever comes next clears what the dead left."""
    chance = random.Random(8)
    for _ in range(5):
        writers = [processes.run(PRUNING_WRITER, tmp_path, number) for number in range(3)]
        for writer in writers:
            kill_somewhere(writer, chance)
        for number in range(1, 5):
            found = store(tmp_path, key(model_revision=f"v{number}")).look_up()
            assert found.result in (CacheResult.HIT, CacheResult.MISS), found.message
    assert store(tmp_path).publish([image(8)], Plan()) == ""
    assert [s.problem for s in maintenance.summaries(tmp_path, verify=True) if s.problem] == []
    leftovers = [p.name for p in tmp_path.iterdir() if p.name.startswith((".staging", ".trash"))]
    assert leftovers == []
