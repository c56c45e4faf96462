"""Shape buckets: which are declared, and which one a step takes.

The choice is a pure function of the step's shape and the buckets' states, and it is total: an
exact bucket, a larger one with padding, or eager execution, always with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warmgraph_api.report import Bucket, BucketMode, BucketState, StepKind
from warmgraph_api.resource import BucketPreset
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Path, PathReason

BALANCED_EAGER_DECODE = 8
"""Balanced captures decode buckets up to here before ready: a pod's first minute of traffic
seldom runs more sequences at once, and each further bucket delays the start."""

Sizes = tuple[list[int], list[int]]
"""Of a kind's eager and lazy buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A declared bucket as the choice sees it."""

    size: int
    shape: StepShape
    has_graph: bool
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    path: Path
    reason: PathReason
    bucket: int
    """Size of the bucket whose graph is replayed; 0 on the eager path."""
    wanted: int
    """Size of the smallest declared bucket that holds the step; 0 if there is none. What traffic
    wanted decides what is captured next."""


def choose(shape: StepShape, candidates: Sequence[Candidate], *, graphs: bool) -> Choice:
    """The path of a step, among the declared buckets of its kind in ascending order.

    The smallest captured bucket that holds the step is used, even if a smaller one is declared
    but not captured: padding costs less than the launches of eager execution.
    """
    fitting = [c for c in candidates if c.shape.holds(shape)]
    wanted = fitting[0].size if fitting else 0
    if not graphs:
        return _eager(PathReason.GRAPHS_OFF, wanted)
    if not fitting:
        too_many_rows = any(c.shape.tokens >= shape.tokens for c in candidates)
        return _eager(PathReason.ALL_LOGITS if too_many_rows else PathReason.NO_BUCKET, wanted)
    usable = next((c for c in fitting if c.has_graph), None)
    if usable is None:
        failed = fitting[0].failed
        return _eager(PathReason.CAPTURE_FAILED if failed else PathReason.NOT_CAPTURED, wanted)
    if _size(shape) == usable.size:
        return Choice(path=Path.EXACT, reason=PathReason.BUCKET, bucket=usable.size, wanted=wanted)
    return Choice(
        path=Path.PADDED, reason=PathReason.LARGER_BUCKET, bucket=usable.size, wanted=wanted
    )


def _eager(reason: PathReason, wanted: int) -> Choice:
    return Choice(path=Path.EAGER, reason=reason, bucket=0, wanted=wanted)


def _size(shape: StepShape) -> int:
    return shape.tokens if shape.kind is StepKind.PREFILL else shape.sequences


def declared(kind: StepKind, eager: Iterable[int], lazy: Iterable[int]) -> list[Bucket]:
    """Buckets of one kind in ascending order. Raises ValueError if a size is in both lists."""
    modes = dict.fromkeys(eager, BucketMode.EAGER)
    for size in lazy:
        if size in modes:
            raise ValueError(f"{kind} bucket {size} is both eager and lazy")
        modes[size] = BucketMode.LAZY
    return [
        Bucket(kind=kind, size=size, mode=modes[size], state=BucketState.PENDING)
        for size in sorted(modes)
    ]


def preset(
    name: BucketPreset, *, max_batch_size: int, max_batch_tokens: int, verify: bool
) -> list[Bucket]:
    """The buckets of a preset, derived from the engine's limits.

    Minimal: decode 1. Balanced: powers of two up to the limits; of decode the small ones are
    eager, of prefill the largest, the one that long prompts are cut into. Full: all of them eager.
    With `verify`, verify buckets are those of decode: either may be the next step of a batch.
    """
    if name is BucketPreset.NONE:
        return []
    decode, prefill = _powers_of_two(1, max_batch_size), _powers_of_two(16, max_batch_tokens)
    of_decode: Sizes = decode, []
    of_prefill: Sizes = prefill, []
    if name is BucketPreset.MINIMAL:
        of_decode, of_prefill = ([1], []), ([], [])
    elif name is BucketPreset.BALANCED:
        small = [size for size in decode if size <= BALANCED_EAGER_DECODE]
        of_decode = small, decode[len(small) :]
        of_prefill = prefill[-1:], prefill[:-1]
    kinds = [(StepKind.DECODE, of_decode), (StepKind.PREFILL, of_prefill)]
    if verify:
        kinds.append((StepKind.VERIFY, of_decode))
    return [bucket for kind, sizes in kinds for bucket in declared(kind, *sizes)]


def _powers_of_two(first: int, limit: int) -> list[int]:
    """Powers of two from `first` up, closed by the limit itself."""
    sizes = []
    while first < limit:
        sizes.append(first)
        first *= 2
    return [*sizes, limit]
