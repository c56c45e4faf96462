"""How products are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgraph_engine.backends.cuda import tiling

SIZES = st.integers(1, 40).map(lambda n: 64 * n) | st.sampled_from([14336, 28672, 3072, 8192])


@given(
    rows=st.integers(1, 5000),
    n=SIZES,
    k=SIZES,
    gated=st.booleans(),
    item=st.sampled_from([2, 4]),
    quantized=st.booleans(),
)
def test_splits_cover_the_inner_dimension_and_tiles_fit(
    rows: int, n: int, k: int, gated: bool, item: int, quantized: bool
) -> None:
    count = 1 if gated else tiling.splits(n, k)
    weight = 1 if quantized else item
    tile = tiling.tiling(rows, k, count=count, gated=gated, item_bytes=item, weight_bytes=weight)
    part = tiling.slice_size(k, count, tile.block_k)
    assert part % tile.block_k == 0
    assert (count - 1) * part < k <= count * part, "no split is empty, none is missing"
    stage = tile.block_k * (tile.block_n * (1 + gated) * weight + tile.block_m * item)
    assert stage * tile.stages <= 227 << 10
    ahead = tiling.prefetch_size(n, part, weight, gated=gated)
    assert 0 <= ahead <= part
    assert ahead * weight % 512 == 0


@pytest.mark.parametrize(("n", "k"), [(3072, 2048), (2048, 8192), (4096, 14336), (576, 576)])
def test_how_a_row_is_summed_depends_on_the_matrix_alone(n: int, k: int) -> None:
    """The bits of a row must not change with the batch: the slices do not."""
    count = tiling.splits(n, k)
    slices = set()
    for rows in (1, 16, 17, 64, 65, 512, 513, 4096):
        for weight in (1, 2):
            tile = tiling.tiling(
                rows, k, count=count, gated=False, item_bytes=2, weight_bytes=weight
            )
            slices.add(tiling.slice_size(k, count, tile.block_k))
    assert len(slices) == 1
