"""The order in which the demo tells what pods report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from demo.kube import Cluster
from demo.warmup import follow

PODS = [
    {"metadata": {"name": "tiny-new", "creationTimestamp": "2026-01-01T12:01:00Z"}},
    {"metadata": {"name": "tiny-old", "creationTimestamp": "2026-01-01T12:00:00Z"}},
]
STATES: dict[str, dict[str, Any]] = {
    "tiny-new": {"ready": True, "report": {"stage": "Serving"}},
    "tiny-old": {"ready": False, "report": {"stage": "Draining"}},
}


class Fake(Cluster):
    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        path = next((word for word in arguments if "/pods/" in word), "")
        found = (state for name, state in STATES.items() if name in path)
        return json.dumps(next(found, {"items": PODS}))


def test_the_new_pod_is_ready_before_the_old_one_drains(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Fake(environment={}, control_plane_image="", engine_image="", model_image="")
    rounds = iter([False, True])

    follow(
        cluster,
        namespace="default",
        name="tiny",
        done=lambda: next(rounds),
        timeout_seconds=10,
        hint="",
    )

    told = [line.split(" s  ")[1] for line in capsys.readouterr().out.splitlines()]
    assert told == ["new  Serving", "new  pod ready", "old  Draining"]
