"""A graph that is played in pieces gives the bits of the whole one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.engine.cuda.models import Sequences, llama_values
from tests.gpu.conftest import Served
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.cuda.pieces import PiecewisePlayer
from warmgraph_engine.shapes import bucket_shape

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("kind", "size"), [(StepKind.DECODE, 1), (StepKind.DECODE, 17), (StepKind.PREFILL, 64)]
)
def test_pieces_give_the_bits_of_the_whole(
    serve: Callable[..., Served], kind: StepKind, size: int
) -> None:
    model = serve(llama_values(), "bfloat16", "bfloat16")
    shape = bucket_shape(kind, size, max_batch_size=32, speculative_tokens=0)
    whole, image = model.capture(shape)
    pieces = PiecewisePlayer(model.backend.player).load(image)
    work = Sequences(
        [40] * shape.sequences,
        vocabulary=model.config.vocabulary,
        block_size=model.settings.block_size,
        blocks=model.backend.limits.blocks,
    )
    counts = [max(1, shape.tokens // shape.sequences)] * shape.sequences
    if kind is StepKind.DECODE:
        model.eager(work.step(StepKind.PREFILL, [9] * shape.sequences, logits=0))
    step = work.step(kind, counts, logits=1)
    expected = model.replay(whole, step, shape)
    for _ in range(3):  # one right after the other
        assert np.array_equal(model.replay(pieces, step, shape), expected)
