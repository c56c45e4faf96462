"""A request's outputs as its handler sees them: submitted together, cancelled together."""

from __future__ import annotations

from types import TracebackType

from warmgraph_engine.loop import EngineFaultError, EngineLoop
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.server.choice import Choice, Piece
from warmgraph_engine.server.errors import engine_failed
from warmgraph_engine.server.post import Post


class Generation:
    """An async context manager: entering submits the choices, leaving cancels what still runs."""

    def __init__(
        self, engine: EngineLoop, post: Post, metrics: EngineMetrics, choices: list[Choice]
    ) -> None:
        self._engine = engine
        self._post = post
        self._metrics = metrics
        self.choices = choices
        self._open = {choice.sequence.id: choice for choice in choices}
        self._failure: EngineFaultError | None = None

    async def __aenter__(self) -> Generation:
        self._box = self._post.register(self.choices)
        try:
            self._engine.submit([choice.sequence for choice in self.choices])
        except BaseException:
            self._post.unregister(self.choices)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._post.unregister(self.choices)
        if self._open:
            self._engine.cancel([choice.sequence for choice in self._open.values()])

    async def pieces(self) -> list[tuple[Choice, Piece]]:
        """Wait for what is new; all of it, for each choice that has something new. Nothing once
        all have ended. Raises ApiError if the engine failed, after what it said before."""
        batch: list[tuple[Choice, Piece]] = []
        while self._open and not batch:
            if self._failure is not None:
                raise engine_failed(str(self._failure))
            for choice, outputs in await self._box.take():
                if outputs[-1].error is not None:
                    self._failure = outputs.pop().error
                # Of a choice that has ended: drawn before the engine learnt of a stop string.
                if outputs and choice.sequence.id in self._open:
                    before = choice.generated
                    batch.append((choice, choice.feed(outputs)))
                    self._metrics.generated_tokens.inc(choice.generated - before)
                    self._close_if_ended(choice)
        return batch

    def _close_if_ended(self, choice: Choice) -> None:
        if choice.finish_reason is not None:
            del self._open[choice.sequence.id]
            if choice.stopped_early:
                self._engine.cancel([choice.sequence])
