"""Kernels are made ready beside serving, and lazy captures wait for them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from tests.engine.warmup.starts import D, Start, buckets, run_all, stored_images
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.backends.preparation import Preparation
from warmgraph_engine.shapes import StepShape


class Recorder:
    """Its preparation lasts until `going`, and fails then if it has an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.going, self._error = Event(), error

    def prepare(self) -> None:
        assert self.going.wait(30)
        if self._error is not None:
            raise self._error

    def record(self, size: int, shape: StepShape) -> GraphImage:
        raise AssertionError("nothing is recorded here")


@pytest.mark.parametrize("error", [None, OSError("no room for processes")])
def test_nobody_waits_for_a_preparation_until_it_is_over_or_has_failed(
    error: Exception | None,
) -> None:
    recorder, told = Recorder(error), Event()
    preparation = Preparation(recorder)
    preparation.start(told.set)
    assert not preparation.over
    assert not told.is_set()
    recorder.going.set()
    assert told.wait(30)
    assert preparation.over


def test_lazy_buckets_are_captured_once_their_kernels_are_ready(
    start: Callable[..., Start],
) -> None:
    first = start(buckets=buckets(eager=[(D, 1)], lazy=[(D, 4)]))
    ready = False
    work = first.work(first.run(), prepared=lambda: ready)
    run_all(work)
    assert set(stored_images(first)) == {(D, 1)}, "what has a graph is proven and stored meanwhile"
    ready = True
    run_all(work)
    assert first.captured == [(D, 1), (D, 4)]
