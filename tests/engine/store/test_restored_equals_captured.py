"""A graph that another process restored gives the very bits of the one that was captured;
tests/gpu/test_store.py asks the same of a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.checkpoints import write_servable_checkpoint
from tests.engine.store import processes, random_steps

STEPS = 1_000
SEED = 11


@pytest.mark.timeout(300)
def test_a_thousand_random_steps_are_equal_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # their number decides the order of sums
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model, cache = write_servable_checkpoint(tmp_path / "model"), tmp_path / "cache"
    engine = random_steps.start(model, cache)
    assert set(engine.states().values()) == {"Captured"}
    engine.publish()
    captured = random_steps.answers(engine, SEED, STEPS)
    engine.close()
    torch.set_num_threads(threads)

    restoring = processes.run_module("tests.engine.store.random_steps", model, cache, SEED, STEPS)
    output, _ = restoring.communicate()
    random_steps.check_restored(captured, output)
