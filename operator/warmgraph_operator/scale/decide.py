"""How many replicas, by requests in flight. A pure function of samples; `decide` says all.

Up at once, down only when fewer sufficed for a whole delay, to zero only when every ready pod has
been idle for long enough by its own clock, which an operator that was restarted reads again. A
number that somebody else wrote gets a whole delay of its own before it is lowered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warmgraph_api.report import Load
from warmgraph_api.resource import Scaling

IDLE_CONFIRMED_SECONDS = 1.0
"""Idle is seen twice, this far apart: between a request's leaving the activator and its arrival
in the engine, neither counts it for a few milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """One sample."""

    replicas: int
    """spec.replicas, as decided last."""
    loads: tuple[Load | None, ...]
    """Of every ready pod; None for one that did not answer."""
    held: int | None
    """Requests that activators hold; None where that could not be asked."""
    settled: bool
    """No rollout is under way: neither new pods that warm up nor old ones that still serve."""
    can_wake: bool
    """Activators are there, so that zero is not a dead end."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What one decision leaves to the next. Losing it delays a scale-down, nothing else."""

    peaks: tuple[tuple[float, int], ...] = ()
    """(time, replicas needed), falling in the second: the highest needs of the delay."""
    since: float | None = None
    """When sampling began."""
    idle_since: float | None = None
    """When the present run of idle samples began."""
    replicas: int | None = None
    """spec.replicas as seen or written last: another number is somebody else's."""
    held_until: float | None = None
    """Until then a number that somebody else wrote is not lowered to zero."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    replicas: int
    because: str
    memory: Memory


def decide(now: float, scaling: Scaling, inputs: Inputs, memory: Memory) -> Decision:
    """now: seconds of a monotonic clock. Whoever writes the decision passes its memory through
    `written`."""
    memory = _notice(now, scaling, inputs.replicas, memory)
    needed = _needed(scaling, inputs)
    since = now if memory.since is None else memory.since
    peaks = _add(memory.peaks, now, needed, horizon=now - scaling.scale_down_delay_seconds)
    idle_since = memory.idle_since if memory.idle_since is not None else now
    held = memory.held_until is not None and now < memory.held_until
    idle = _is_idle(scaling, inputs) and not held
    kept = replace(memory, peaks=peaks, since=since, idle_since=idle_since if idle else None)

    def result(replicas: int, because: str) -> Decision:
        return Decision(replicas=replicas, because=because, memory=kept)

    if inputs.replicas == 0:
        if scaling.min_replicas == 0:
            return result(0, "at zero; a request wakes it")
        return result(scaling.min_replicas, f"minReplicas is {scaling.min_replicas}")
    if kept.idle_since is not None and now - kept.idle_since >= IDLE_CONFIRMED_SECONDS:
        return result(0, f"no request for {scaling.idle_seconds} s")
    if needed > inputs.replicas:
        return result(needed, f"{_in_flight(inputs)} requests in flight")
    complete = now - since >= scaling.scale_down_delay_seconds
    sufficed = peaks[0][1]
    if complete and sufficed < inputs.replicas:
        seconds = scaling.scale_down_delay_seconds
        return result(sufficed, f"{sufficed} sufficed for {seconds} s")
    # Bounds hold at once, also over an unfinished delay.
    bounded = min(inputs.replicas, scaling.max_replicas)
    return result(bounded, f"maxReplicas is {scaling.max_replicas}")


def written(memory: Memory, replicas: int) -> Memory:
    """After a decision has reached spec.replicas: that number is nobody else's."""
    return replace(memory, replicas=replicas)


def _notice(now: float, scaling: Scaling, replicas: int, memory: Memory) -> Memory:
    """Everything begins anew with a number that somebody else wrote. The activator's 1 at zero is
    none: a deployment that was woken sleeps again once it is idle."""
    if memory.replicas in (None, replicas) or (memory.replicas, replicas) == (0, 1):
        return replace(memory, replicas=replicas)
    longest = max(scaling.scale_down_delay_seconds, scaling.idle_seconds)
    return Memory(since=now, replicas=replicas, held_until=now + longest)


def _in_flight(inputs: Inputs) -> int:
    return sum(load.in_flight for load in inputs.loads if load) + (inputs.held or 0)


def _needed(scaling: Scaling, inputs: Inputs) -> int:
    """At least one: zero is decided by idleness alone. A pod that does not answer is as full as
    its target, so that trouble in asking never removes replicas."""
    silent = sum(load is None for load in inputs.loads)
    in_flight = _in_flight(inputs) + silent * scaling.target_in_flight
    needed = -(-in_flight // scaling.target_in_flight)
    return min(max(needed, scaling.min_replicas, 1), scaling.max_replicas)


def _is_idle(scaling: Scaling, inputs: Inputs) -> bool:
    return (
        scaling.min_replicas == 0
        and inputs.can_wake
        and inputs.settled
        and inputs.held == 0
        # A pod that is still starting has no idle time: it never counts as idle.
        and len(inputs.loads) > 0
        and all(
            load is not None and load.in_flight == 0 and load.idle_seconds >= scaling.idle_seconds
            for load in inputs.loads
        )
    )


def _add(
    peaks: tuple[tuple[float, int], ...], now: float, needed: int, *, horizon: float
) -> tuple[tuple[float, int], ...]:
    """The sliding maximum: drop what is too old, and what a later, higher need covers."""
    kept = tuple(peak for peak in peaks if peak[0] > horizon and peak[1] > needed)
    return (*kept, (now, needed))
