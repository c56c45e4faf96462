"""Why a pod is not ready: what Kubernetes and the pod's sidecar say of it, as one problem."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from warmgraph_api.reasons import Reason
from warmgraph_api.report import PodState
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import condition, is_true
from warmgraph_operator.problem import Problem

_IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_CONFIG_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)

CRASHES_IN_A_LOOP = 2
"""A single crash may be a lost GPU or a node's trouble; the second is a loop, also in the moments
between two restarts when the container runs."""

PATIENCE_SECONDS = 15.0
"""Attaching a volume or setting up a network often fails once and works a few seconds later."""

LAST_WORDS = 300
"""Characters of a crashed container's last line: what an exception says begins with its name."""

_LOG_PREFIX = re.compile(r"\d{4}-\d\d-\d\d[ T][\d:.,]+\S* +(DEBUG|INFO|WARNING|ERROR|CRITICAL) +")

_REPORTED = frozenset({Reason.WARMUP_STALLED, Reason.WARMUP_FAILED, Reason.ENGINE_FAULT})


def diagnose(pod: Object, state: PodState | None, *, warning: str = "") -> Problem | None:
    """The pod's problem, or None where it is ready or simply on its way.

    state: what its sidecar said; None where it could not be asked.
    warning: the latest warning event about it, as far as one was looked for.
    """
    if is_true(pod, "Ready"):
        return None
    name = pod["metadata"]["name"]
    crashes_count = not _came_up(state)
    problem = _unschedulable(pod) or _containers(pod, crashes_count) or _reported(state)
    if problem is None and warning:
        problem = Problem(Reason.POD_REJECTED, warning)
    return Problem.of(problem.reason, f"Pod {name}: {problem.message}") if problem else None


def _unschedulable(pod: Object) -> Problem | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled["status"] == "False" and scheduled.get("reason") == "Unschedulable":
        return Problem(Reason.UNSCHEDULABLE, scheduled.get("message", "no node fits"))
    return None


def _came_up(state: PodState | None) -> bool:
    """The engine that runs now finished its warmup: earlier crashes are not what is wrong now."""
    report = state.report if state and state.engine_connected else None
    return report is not None and report.ready_seconds is not None


def _containers(pod: Object, crashes_count: bool) -> Problem | None:
    status = pod.get("status") or {}
    for entry in [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]:
        problem = _waiting(entry) or (_crashed(entry) if crashes_count else None)
        if problem:
            return problem
    return None


def _waiting(entry: Object) -> Problem | None:
    waiting = (entry.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE_REASONS:
        # The kubelet tries, waits, and tries again: the cause is the same in each of its words.
        cause = message.rpartition("ErrImagePull: ")[2] or reason
        return Problem(
            Reason.IMAGE_PULL_FAILED,
            f"image {entry.get('image', '')!r} of container {entry['name']} cannot be pulled: "
            + cause,
        )
    if reason in _CONFIG_REASONS:
        return Problem(
            Reason.POD_REJECTED, f"container {entry['name']} cannot be created: {message or reason}"
        )
    return None


def _crashed(entry: Object) -> Problem | None:
    """A container whose last run ended badly and that has not become ready since."""
    state = entry.get("state") or {}
    ended = state.get("terminated") or (entry.get("lastState") or {}).get("terminated")
    restarts = entry.get("restartCount", 0)
    looping = (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff"
    if not ended and not looping:
        return None
    ended = ended or {}
    code = ended.get("exitCode", 0)
    if ended.get("reason") == "OOMKilled":
        return Problem(
            Reason.OUT_OF_MEMORY,
            f"container {entry['name']} was killed for its memory ({restarts} restarts): raise "
            "template.resources.limits.memory, or lower engine.kvCache.memory or the buckets",
        )
    if not looping and restarts < CRASHES_IN_A_LOOP and not state.get("terminated"):
        return None
    if code == 0 and not looping:
        return None
    words = _last_words(ended.get("message") or "")
    return Problem(
        Reason.ENGINE_CRASH_LOOPING,
        f"container {entry['name']} exited with code {code} ({restarts} restarts)"
        + (f": {words}" if words else "; see its log"),
    )


def _last_words(output: str) -> str:
    """The last line of a log, without its time and level: there a process says why it ends."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    last = _LOG_PREFIX.sub("", lines[-1], count=1) if lines else ""
    return last if len(last) <= LAST_WORDS else f"{last[: LAST_WORDS - 1]}…"


def _reported(state: PodState | None) -> Problem | None:
    """The sidecar's own verdict, where it says that something is wrong rather than under way."""
    if state is None or state.reason not in _REPORTED:
        return None
    return Problem(Reason(state.reason), state.message)


def needs_events(pod: Object, now: datetime) -> bool:
    """It has waited for a while for something that only an event names: a volume, a network."""
    if is_true(pod, "Ready") or not is_true(pod, "PodScheduled"):
        return False
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    if (now - created).total_seconds() < PATIENCE_SECONDS:
        return False
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or []
    return not statuses or any("waiting" in (entry.get("state") or {}) for entry in statuses)


def first_problem(
    pods: tuple[Object, ...], reports: Mapping[str, PodState], warnings: Mapping[str, str]
) -> Problem | None:
    """Of the newest pod that has one."""
    for pod in reversed(pods):
        name = pod["metadata"]["name"]
        problem = diagnose(pod, reports.get(name), warning=warnings.get(name, ""))
        if problem:
            return problem
    return None
