"""The sum over two ranks, seen from one: the other's part and flags are put where it would.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engine.cuda.interpreted import run
from tests.engine.cuda.models import llama, settings
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.cuda import reduction
from warmgraph_engine.backends.cuda.launches import Launches
from warmgraph_engine.backends.cuda.layout import REDUCE_PROGRAMS, geometry, plan_peers
from warmgraph_engine.models.shard import shard
from warmgraph_engine.shapes import StepShape

HIDDEN = 64
CONFIG = shard(llama(hidden_size=HIDDEN), 2)


class Pair:
    """Rank `rank` of two, with memory of its own and the inbox and flags of the other."""

    def __init__(self, rank: int) -> None:
        self.rank, self.other = rank, 1 - rank
        self.options = settings(rank=rank, ranks=2)
        self.shared = [
            {
                region.name: torch.zeros(region.shape, dtype=getattr(torch, region.dtype))
                for region in plan_peers(CONFIG, self.options)
            }
            for _ in range(2)
        ]
        generator = torch.Generator().manual_seed(rank)
        self.residual = torch.randn(80, HIDDEN, generator=generator)
        self.memory: dict[str, torch.Tensor] = {
            **self.shared[rank],
            "work.partial": torch.zeros(80 * HIDDEN),
            "work.residual": self.residual.clone(),
            "work.x": torch.full((80, HIDDEN), torch.nan),
            "weights.norm": torch.ones(HIDDEN),
            "buffers.logit_rows": torch.tensor([5, 2, 0, 7]),
            "work.places": torch.tensor(
                [
                    [memory[name].data_ptr() for memory in self.shared]
                    for name in ("peers.inbox", "peers.flags")
                ]
            ),
            "work.reductions": torch.zeros(3, dtype=torch.int64),
            "results.lost": torch.zeros(1, dtype=torch.int32),
        }

    def reduce(self, tokens: int, *, gather: int = 0, comes: bool = True) -> None:
        """One reduction, to which the other rank comes with random numbers, or does not."""
        epoch = int(self.memory["work.reductions"][0]) + 1
        generator = torch.Generator().manual_seed(epoch)
        own, theirs = torch.randn(2, tokens, HIDDEN, generator=generator)
        self.memory["work.partial"][: own.numel()] = own.flatten()
        rows = self.memory["buffers.logit_rows"][:gather] if gather else torch.arange(tokens)
        programs = min(len(rows), REDUCE_PROGRAMS)
        if comes:
            self.memory["peers.inbox"][epoch % 2, self.other, : len(rows)] = theirs[rows]
            self.memory["peers.flags"][self.other, :programs] = epoch
        shape = StepShape(
            kind=StepKind.PREFILL, tokens=tokens, sequences=4, logit_rows=gather or tokens
        )
        launch = Launches(CONFIG, geometry(self.options), shape).add_norm(
            "norm", "layers.0.down", gather=bool(gather)
        )
        before = self.memory["work.residual"].clone()
        run([launch], self.memory)
        if not comes:
            return
        first, second = (own, theirs) if self.rank == 0 else (theirs, own)
        wanted = (before[rows] + (first + second)[rows]).double()
        normed = wanted / (wanted.square().mean(1, keepdim=True) + CONFIG.norm_eps).sqrt()
        assert torch.allclose(self.memory["work.x"][: len(rows)].double(), normed, atol=1e-5)
        if not gather:
            assert torch.equal(self.memory["work.residual"][:tokens].double(), wanted)
        sent = self.shared[self.other]
        assert torch.equal(sent["peers.inbox"][epoch % 2, self.rank, : len(rows)], own[rows])
        assert (sent["peers.flags"][self.rank, :programs] == epoch).all()
        assert self.memory["work.reductions"].tolist() == [epoch, 0, 0]


@pytest.mark.parametrize("rank", [0, 1])
def test_every_reduction_adds_up_what_both_ranks_brought(rank: int) -> None:
    pair = Pair(rank)
    for tokens in (1, 4, 3, 80, 2):
        pair.reduce(tokens)
    pair.reduce(9, gather=4)
    pair.reduce(1)


def test_more_rows_than_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "REDUCE_PROGRAMS", 3)
    monkeypatch.setitem(globals(), "REDUCE_PROGRAMS", 3)
    pair = Pair(0)
    flags: Any = pair.shared
    for memory in flags:
        memory["peers.flags"] = memory["peers.flags"][:, :3].contiguous()
    pair.memory["peers.flags"] = flags[0]["peers.flags"]
    pair.memory["work.places"][1] = torch.tensor([m["peers.flags"].data_ptr() for m in flags])
    for tokens in (8, 7, 1, 4):
        pair.reduce(tokens)


def test_a_flag_of_the_next_reduction_counts_for_this_one() -> None:
    """The other rank may have seen ours, and gone on, before we look."""
    pair = Pair(0)
    pair.reduce(2)
    pair.reduce(2, comes=True)
    pair.memory["peers.flags"][1, :2] = 4
    pair.memory["peers.inbox"][1, 1, :2] = 1.0
    pair.reduce(2, comes=False)
    assert pair.memory["results.lost"].tolist() == [0]


def test_a_rank_that_does_not_come_is_told_to_the_host_and_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reduction, "REDUCE_SPINS", 50)
    pair = Pair(1)
    pair.reduce(3)
    pair.reduce(3, comes=False)
    assert pair.memory["results.lost"].tolist() == [1]  # 1 + rank 0
    # Nobody would see the end of this one if it waited.
    monkeypatch.setattr(reduction, "REDUCE_SPINS", 1 << 30)
    pair.reduce(3, comes=False)
    assert pair.memory["work.reductions"].tolist() == [3, 0, 1]


def test_a_flag_that_was_raised_very_long_ago_is_not_taken_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few steps are as large as to need every program: theirs may be billions of sums old."""
    monkeypatch.setattr(reduction, "REDUCE_SPINS", 50)
    pair = Pair(0)
    pair.reduce(3)
    pair.memory["work.reductions"][0] = (1 << 31) + 5
    pair.reduce(3, comes=False)
    assert pair.memory["results.lost"].tolist() == [2]  # 1 + rank 1
