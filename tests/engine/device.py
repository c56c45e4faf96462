"""A sampler that keeps what it draws on its device, as one on a GPU does."""

from __future__ import annotations

from types import SimpleNamespace

from tests.engine.toy import ToyExecutor
from warmgraph_engine.sampling.cpu import CpuSampler, ReadyTokens
from warmgraph_engine.sampling.sampler import Draw


class DeviceSampler(CpuSampler):
    """Draws at once, but what the host has read by then is not looked at: each sequence's output
    is kept here, and its newest token in the executor's slot, where PENDING_TOKEN finds it."""

    def __init__(self, executor: ToyExecutor) -> None:
        super().__init__(vocabulary=executor.limits.vocabulary)
        self._executor = executor
        self._known: dict[int, SimpleNamespace] = {}

    def sample(self, logits, draws) -> ReadyTokens:
        known = [self._on_device(draw) for draw in draws]
        drawn = super().sample(logits, known)
        for draw, token in zip(known, drawn.tokens, strict=True):
            draw.sequence.tokens.append(token.token_id)
            self._executor.last_drawn[draw.slot] = token.token_id
        return drawn

    def forget(self, sequence_id: int) -> None:
        super().forget(sequence_id)
        self._known.pop(sequence_id, None)

    def _on_device(self, draw: Draw) -> Draw:
        host = draw.sequence
        known = self._known.get(host.id)
        if known is None:
            known = self._known[host.id] = SimpleNamespace(
                id=host.id,
                params=host.params,
                random_key=host.random_key,
                tokens=list(host.tokens),
                prompt_length=host.prompt_length,
            )
        assert len(known.tokens) == host.prompt_length + draw.position
        assert host.tokens == known.tokens[: len(host.tokens)]
        return Draw(draw.row, known, draw.position, draw.slot)
