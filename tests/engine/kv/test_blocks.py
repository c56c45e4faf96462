import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warmgraph_engine.kv import DUMMY_BLOCK, BlockPool, OutOfBlocksError, blocks_for


def test_the_dummy_block_of_padding_rows_is_never_handed_out():
    assert DUMMY_BLOCK not in BlockPool(7).allocate(7)


def test_an_allocation_is_all_or_nothing():
    pool = BlockPool(3)
    pool.allocate(2)
    with pytest.raises(OutOfBlocksError, match="2 KV blocks asked for, 1 free"):
        pool.allocate(2)
    assert pool.free == 1


@pytest.mark.parametrize("block", [0, -1, 1, 4])
def test_giving_back_a_block_that_is_not_held_is_refused(block):
    pool = BlockPool(3)
    held = pool.allocate(2)
    assert 1 in held
    pool.release([1])
    with pytest.raises(ValueError, match="not held"):
        pool.release([block])


@given(positions=st.integers(0, 10_000), block_size=st.integers(1, 64))
def test_blocks_cover_the_positions_and_no_more(positions, block_size):
    blocks = blocks_for(positions, block_size)
    assert blocks * block_size >= positions > (blocks - 1) * block_size


class PoolUnderUse(RuleBasedStateMachine):
    """However blocks are taken and given back, each is free or held once."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(16)
        self.held: list[list[int]] = []

    @rule(count=st.integers(0, 20))
    def allocate(self, count):
        if count > self.pool.free:
            with pytest.raises(OutOfBlocksError):
                self.pool.allocate(count)
        else:
            self.held.append(self.pool.allocate(count))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @invariant()
    def every_block_is_free_or_held_once(self):
        held = [block for blocks in self.held for block in blocks]
        assert len(held) == len(set(held)) == self.pool.used
        assert set(held) <= set(range(1, 17))
        assert self.pool.used + self.pool.free == self.pool.total == 16


TestPoolUnderUse = PoolUnderUse.TestCase
