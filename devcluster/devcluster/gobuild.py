"""Compiling Go programs, with a sign of life: the largest takes ten minutes on two cores."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from devcluster.console import Ticker
from devcluster.errors import DevclusterError

# An hour is six times what the slowest build takes on two cores.
TIMEOUT_SECONDS = 3600.0

MINIMUM_GO = (1, 26)


def go() -> str:
    """A Go that is new enough, or an error that says what is missing."""
    found = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if found is None:
        raise DevclusterError("Go is missing: install Go 1.26 or newer and put it on PATH")
    version = subprocess.run(
        [found, "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=60
    ).stdout.strip()
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < MINIMUM_GO:
        raise DevclusterError(f"{found} is {version}; Go 1.26 or newer is needed")
    return found


def environment() -> dict[str, str]:
    # Static binaries run in any image; -buildvcs would key them by the state of this checkout.
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}


def run(
    what: str,
    arguments: Sequence[str],
    *,
    cwd: Path,
    expected_packages: int,
    extra_environment: dict[str, str] | None = None,
) -> None:
    """Runs `go build -v` or `go install -v`, which name each package as it is compiled.

    `expected_packages` is what an empty Go cache has to compile; with a warm one fewer are named.
    """
    command = [go(), *arguments]
    ticker = Ticker(what)
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**environment(), **(extra_environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        compiled, messages = 0, list[str]()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with selectors.DefaultSelector() as selector:
            os.set_blocking(process.stderr.fileno(), False)
            selector.register(process.stderr, selectors.EVENT_READ)
            pending = ""
            while True:
                if selector.select(timeout=0.5):
                    chunk = os.read(process.stderr.fileno(), 65536).decode(errors="replace")
                    if not chunk:
                        break
                    *lines, pending = (pending + chunk).split("\n")
                    compiled += sum(is_package(line) for line in lines)
                    messages += [line for line in lines if not is_package(line)]
                ticker.update(progress(compiled, expected_packages))
                if time.monotonic() > deadline:
                    process.kill()
                    raise DevclusterError(
                        f"{what}: not built within {TIMEOUT_SECONDS / 60:.0f} min"
                    )
        if process.wait() != 0:
            shown = "\n".join(f"    {line}" for line in [*messages, pending][-20:] if line)
            raise DevclusterError(f"{what}: `{' '.join(command)}` failed in {cwd}:\n{shown}")
    ticker.done(f"built, {compiled} packages compiled")


def is_package(line: str) -> bool:
    """Tells `go build -v`'s package names from its messages, which hold spaces or colons."""
    return bool(re.fullmatch(r"[\w.~/@+-]+", line))


def progress(compiled: int, expected: int) -> str:
    if compiled == 0:
        return "reading sources (or linking, when all is compiled)"
    if compiled >= expected:
        return "linking"
    return f"{compiled} of up to {expected} packages compiled"
