"""The tool ends what it started, and nothing else."""

import dataclasses
import os
import sys
import time
from pathlib import Path

from devcluster import process


def sleeper(tmp_path: Path) -> process.Identity:
    return process.spawn(["/bin/sleep", "60"], log=tmp_path / "log", environment={})


def test_started_process_is_alive_until_stopped(tmp_path: Path) -> None:
    started = sleeper(tmp_path)
    assert process.alive(started)
    process.stop(started)
    assert not process.alive(started)


def test_process_that_reuses_the_pid_is_left_alone(tmp_path: Path) -> None:
    other = sleeper(tmp_path)
    stale = dataclasses.replace(other, start_ticks=other.start_ticks - 1)
    process.stop(stale)
    assert process.alive(other)
    process.stop(other)


def test_process_of_an_earlier_boot_is_not_alive(tmp_path: Path) -> None:
    started = sleeper(tmp_path)
    assert not process.alive(dataclasses.replace(started, boot="another"))
    process.stop(started)


def test_process_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w'); "
    started = process.spawn(
        [sys.executable, "-c", code + "time.sleep(60)"], log=tmp_path / "log", environment={}
    )
    while not ready.exists():
        time.sleep(0.01)
    process.stop(started, grace_seconds=0.2)
    assert not process.alive(started)


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "folder" / "log"
    started = process.spawn(["/bin/sh", "-c", "echo out; echo err >&2"], log=log, environment={})
    while process.alive(started):
        time.sleep(0.01)
    assert sorted(log.read_text().split()) == ["err", "out"]


def test_name_with_brackets_and_spaces_does_not_confuse_stat() -> None:
    fields = " ".join(str(number) for number in range(1, 30))
    assert process.parse_stat(f"42 (a) b (c) S {fields}") == ("S", 19)


def test_own_process_is_identified() -> None:
    own = process.identify(os.getpid())
    assert own is not None
    assert process.alive(own)
