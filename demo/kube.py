"""kubectl and helm, as a user would call them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.console import fail


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where the demo runs, and the images it runs there."""

    environment: dict[str, str]
    control_plane_image: str
    engine_image: str
    model_image: str

    def run(self, *command: str, stdin: str | None = None, check: bool = True) -> str:
        """Standard output of a command; ends the demo with its error if it fails."""
        result = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            env=os.environ | self.environment,
            check=False,
        )
        if check and result.returncode != 0:
            fail(f"`{' '.join(command[:6])} …` failed:\n{result.stderr.strip()}")
        return result.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        return self.run("kubectl", *arguments, stdin=stdin, check=check)

    def get(self, *arguments: str) -> dict[str, Any]:
        """An object or list as kubectl prints it; empty when there is none."""
        text = self.kubectl("get", *arguments, "-o", "json", check=False)
        found: dict[str, Any] = json.loads(text) if text.strip() else {}
        return found

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A command that goes on beside the demo. Its output is the caller's to read, and its
        standard input stays open until it is terminated."""
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | self.environment,
        )


def wait_until(
    done: Callable[[], bool], *, timeout_seconds: float, what: str, hint: str, poll: float = 0.3
) -> float:
    """Seconds until `done` says so; ends the demo with `hint` after the timeout."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > timeout_seconds:
            fail(f"{what} did not happen within {timeout_seconds:.0f} s. Look at: {hint}")
        time.sleep(poll)
    return time.monotonic() - began


ROOT = Path(__file__).parent.parent
