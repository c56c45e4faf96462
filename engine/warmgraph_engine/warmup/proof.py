"""The proof of a stored form: a graph rebuilt from it plays like the graph that serves."""

from __future__ import annotations

import numpy as np

from warmgraph_engine.backends.base import Backend, first_line
from warmgraph_engine.canary import canary_step
from warmgraph_engine.graphs import Entry
from warmgraph_engine.warmup.check import Replay, drawing_problem, replayed


def stored_form_problem(backend: Backend, entry: Entry) -> str:
    """Why a bucket's image must not be stored, or an empty text.

    Two replays of one token in the dummy block, so that it may happen between the steps of real
    requests. They must agree bit for bit: nothing but the graph object is another.
    """
    assert entry.graph is not None
    assert entry.image is not None
    step = canary_step(entry.shape)
    try:
        replay = replayed(backend, entry.graph, step, entry.shape)
        recorded = Replay(np.array(replay.logits, copy=True), replay.drawn)
        rebuilt = backend.player.load(entry.image)
        again = replayed(backend, rebuilt, step, entry.shape)
    except (RuntimeError, ValueError, IndexError) as error:  # ImageError among them
        return f"its stored form fails: {first_line(error)}"
    if recorded.logits.tobytes() != again.logits.tobytes():
        return "its stored form gives other logits"
    if recorded.drawn != again.drawn:
        return "its stored form draws other tokens"
    if not np.isfinite(recorded.logits).all():
        return "its logits are not numbers"
    return drawing_problem(step, recorded)
