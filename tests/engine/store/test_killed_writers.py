"""A writer that is killed at any moment leaves an entry that loads, or none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.engine.store.entries import KEY, image, store
from warmgraph_api.report import CacheResult
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


def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(7)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    hits = 0
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=environment, text=True
        ) as writer:
            assert writer.stdout is not None
            # Some rounds end within the first publish, some within a later one; where in it is
            # up to the machine.
            for _ in range(chance.randint(1, 6)):
                writer.stdout.readline()
            for _ in range(chance.randint(0, 20_000)):
                pass
            os.kill(writer.pid, signal.SIGKILL)
            writer.stdout.close()
        found = store(tmp_path).look_up()
        assert found.result in (CacheResult.HIT, CacheResult.MISS), found.message
        hits += found.result is CacheResult.HIT
    assert hits >= ROUNDS // 2
    last = store(tmp_path)
    assert last.publish([image(8)], Plan()) == ""
    assert store(tmp_path).look_up().result is CacheResult.HIT
    assert {path.name for path in tmp_path.iterdir()} == {".lock", KEY.digest()}
