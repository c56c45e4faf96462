"""Warmup reports for tests: one short call each."""

from __future__ import annotations

from typing import Any

from warmgraph_api.report import (
    Bucket,
    BucketMode,
    BucketState,
    Check,
    CheckState,
    Stage,
    StepKind,
    WarmupReport,
)
from warmgraph_api.resource import OnCaptureFailure, WarmupPolicy
from warmgraph_sidecar.verdict import Policy

PENDING = BucketState.PENDING
CAPTURED = BucketState.CAPTURED
RESTORED = BucketState.RESTORED
FALLBACK = BucketState.FALLBACK


def policy(**changes: Any) -> Policy:
    """The resource's defaults, with a round stall timeout."""
    values: dict[str, Any] = {
        "warmup": WarmupPolicy.REQUIRE_EAGER,
        "on_capture_failure": OnCaptureFailure.FALLBACK,
        "known_answer_check": True,
        "stall_timeout_seconds": 100.0,
    }
    return Policy(**(values | changes))


def eager(*states: BucketState) -> list[Bucket]:
    return [_bucket(i, BucketMode.EAGER, state) for i, state in enumerate(states)]


def lazy(*states: BucketState) -> list[Bucket]:
    return [_bucket(i + 8, BucketMode.LAZY, state) for i, state in enumerate(states)]


def _bucket(exponent: int, mode: BucketMode, state: BucketState) -> Bucket:
    reason = "out of memory" if state is FALLBACK else ""
    return Bucket(kind=StepKind.DECODE, size=2**exponent, mode=mode, state=state, reason=reason)


def report(**changes: Any) -> WarmupReport:
    """A report of a serving engine with two captured buckets and a passed check."""
    values: dict[str, Any] = {
        "boot_id": "first",
        "sequence": 1,
        "progress": 1,
        "stage": Stage.SERVING,
        "started_at": 1000.0,
        "buckets": eager(CAPTURED, CAPTURED),
        "check": Check(state=CheckState.PASSED),
    }
    return WarmupReport(**(values | changes))
