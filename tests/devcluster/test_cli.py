"""The command line, as shells and scripts use it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.paths import Layout


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_seen_enough_ends_the_command_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: int
) -> None:
    monkeypatch.setenv("WARMGRAPH_STATE", str(tmp_path))
    log = Layout.of("default").log("etcd")
    log.parent.mkdir(parents=True)
    log.write_text("a line\n" * lines)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "devcluster", "logs", "etcd"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")
