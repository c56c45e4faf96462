"""Which path a step takes: always one, always with its reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgraph_api.report import BucketMode, StepKind
from warmgraph_api.resource import BucketPreset
from warmgraph_engine.buckets import Candidate, choose, declared, preset
from warmgraph_engine.shapes import StepShape, bucket_shape
from warmgraph_engine.step import Path, PathReason


def bucket(size: int, kind: StepKind = StepKind.DECODE, **state: bool) -> Candidate:
    shape = bucket_shape(kind, size, max_batch_size=8, speculative_tokens=3)
    return Candidate(size=size, shape=shape, **{"has_graph": True, **state})


def decode(sequences: int) -> StepShape:
    return bucket_shape(StepKind.DECODE, sequences, max_batch_size=8, speculative_tokens=0)


@pytest.mark.parametrize(
    ("sequences", "path", "reason", "used"),
    [
        (1, Path.EXACT, PathReason.BUCKET, 1),
        (2, Path.EXACT, PathReason.BUCKET, 2),
        (3, Path.PADDED, PathReason.LARGER_BUCKET, 4),
        (4, Path.EXACT, PathReason.BUCKET, 4),
        (5, Path.EAGER, PathReason.NO_BUCKET, 0),
    ],
)
def test_exact_else_larger_else_eager(
    sequences: int, path: Path, reason: PathReason, used: int
) -> None:
    choice = choose(decode(sequences), [bucket(1), bucket(2), bucket(4)], graphs=True)
    assert (choice.path, choice.reason, choice.bucket) == (path, reason, used)


def test_a_bucket_that_is_not_captured_yet_is_wanted_while_a_larger_one_serves() -> None:
    choice = choose(decode(2), [bucket(2, has_graph=False), bucket(4)], graphs=True)
    assert (choice.path, choice.bucket, choice.wanted) == (Path.PADDED, 4, 2)


def test_without_any_graph_the_reason_tells_waiting_from_failed() -> None:
    waiting = choose(decode(2), [bucket(2, has_graph=False)], graphs=True)
    failed = choose(decode(2), [bucket(2, has_graph=False, failed=True)], graphs=True)
    assert waiting.reason is PathReason.NOT_CAPTURED
    assert failed.reason is PathReason.CAPTURE_FAILED


def test_graphs_off_is_a_reason_of_its_own() -> None:
    assert choose(decode(1), [bucket(1)], graphs=False).reason is PathReason.GRAPHS_OFF


def test_logits_of_every_prompt_token_do_not_fit_a_graphs_output() -> None:
    shape = StepShape(kind=StepKind.PREFILL, tokens=20, sequences=1, logit_rows=20)
    choice = choose(shape, [bucket(32, StepKind.PREFILL)], graphs=True)
    assert (choice.path, choice.reason) == (Path.EAGER, PathReason.ALL_LOGITS)


@given(
    tokens=st.integers(1, 40),
    sequences=st.integers(1, 10),
    rows=st.integers(0, 40),
    states=st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), max_size=6),
    graphs=st.booleans(),
)
def test_every_step_has_a_path_that_holds_it(
    tokens: int, sequences: int, rows: int, states: list[tuple[int, bool, bool]], graphs: bool
) -> None:
    shape = StepShape(
        kind=StepKind.PREFILL,
        tokens=max(tokens, sequences),
        sequences=sequences,
        logit_rows=min(rows, max(tokens, sequences)),
    )
    sizes = {size: (graph, failed) for size, graph, failed in states}
    candidates = [
        bucket(size, StepKind.PREFILL, has_graph=graph, failed=failed and not graph)
        for size, (graph, failed) in sorted(sizes.items())
    ]
    choice = choose(shape, candidates, graphs=graphs)
    if choice.path is Path.EAGER:
        assert choice.bucket == 0
        assert not graphs or not any(c.has_graph and c.shape.holds(shape) for c in candidates)
    else:
        used = next(c for c in candidates if c.size == choice.bucket)
        assert used.has_graph
        assert used.shape.holds(shape)
        assert choice.wanted <= choice.bucket


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 100])
def test_presets_end_at_the_limits(limit: int) -> None:
    buckets = preset(
        BucketPreset.FULL, max_batch_size=limit, max_batch_tokens=16 * limit, verify=False
    )
    decode_sizes = [b.size for b in buckets if b.kind is StepKind.DECODE]
    prefill_sizes = [b.size for b in buckets if b.kind is StepKind.PREFILL]
    assert decode_sizes[-1] == limit
    assert prefill_sizes[-1] == 16 * limit
    assert all(b.mode is BucketMode.EAGER for b in buckets)


def test_the_balanced_preset_delays_readiness_for_small_batches_only() -> None:
    buckets = preset(BucketPreset.BALANCED, max_batch_size=32, max_batch_tokens=128, verify=False)
    eager = [(b.kind, b.size) for b in buckets if b.mode is BucketMode.EAGER]
    assert eager == [*((StepKind.DECODE, n) for n in (1, 2, 4, 8)), (StepKind.PREFILL, 128)]


@pytest.mark.parametrize("name", [BucketPreset.MINIMAL, BucketPreset.BALANCED, BucketPreset.FULL])
def test_with_speculation_a_preset_has_a_verify_bucket_for_each_of_decode(
    name: BucketPreset,
) -> None:
    buckets = preset(name, max_batch_size=32, max_batch_tokens=128, verify=True)

    def sizes(kind: StepKind) -> list[tuple[int, BucketMode]]:
        return [(b.size, b.mode) for b in buckets if b.kind is kind]

    assert sizes(StepKind.VERIFY) == sizes(StepKind.DECODE) != []


def test_a_size_cannot_be_eager_and_lazy() -> None:
    with pytest.raises(ValueError, match="decode bucket 2 is both"):
        declared(StepKind.DECODE, [1, 2], [2])
