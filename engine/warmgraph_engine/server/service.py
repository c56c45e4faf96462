"""What the handlers work with: nothing until the model is loaded, then the engine and the text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from warmgraph_api.report import Stage
from warmgraph_engine.loop import EngineLoop
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.server.choice import Choice
from warmgraph_engine.server.errors import ApiError, unavailable
from warmgraph_engine.server.generation import Generation
from warmgraph_engine.server.post import Post
from warmgraph_engine.server.validation import ModelFacts
from warmgraph_engine.tokenizer.text import TextModel

T = TypeVar("T")

StageSource = Callable[[], tuple[Stage, str]]
"""Where the start is, with a message for people. Asked at every request."""

ANSWERING = frozenset({Stage.SERVING, Stage.DRAINING})
"""While it drains an engine still serves: endpoints take a moment to follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    max_body_bytes: int = 4 << 20
    """A prompt of 128,000 tokens is about 0.6 MB of text or 0.9 MB of token ids."""
    retry_after_seconds: int = 2
    """What refused clients are told to wait: about the length of a warm start."""
    inline_characters: int = 4096
    """Longer prompts are tokenized in a thread: at about 1 µs a character, handing over costs
    more than it saves below this."""
    stalled_client_seconds: float = 120.0
    """A client that neither reads its answer nor sends its body for this long is given up: it
    would count as in flight, and keep the pod from sleeping, for as long as it likes."""
    tokenizer_threads: int = 2
    """Long prompts tokenized at a time; more would take the cores that the model needs."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    engine: EngineLoop
    text: TextModel
    facts: ModelFacts


class Service:
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        *,
        model_name: str,
        stage: StageSource,
        metrics: EngineMetrics,
        settings: ServerSettings | None = None,
    ) -> None:
        self.model_name = model_name
        self.metrics = metrics
        self.settings = settings or ServerSettings()
        self._stage = stage
        self._loaded: LoadedModel | None = None
        self._post: Post | None = None
        self._threads = ThreadPoolExecutor(self.settings.tokenizer_threads, "tokenizer")

    def attach(self, engine: EngineLoop, text: TextModel) -> None:
        """Give the server its model, and start the engine's thread. Call on the event loop."""
        facts = ModelFacts(engine.limits, text.eos_token_ids, text.defaults)
        self._post = Post(asyncio.get_running_loop(), self.metrics)
        self._loaded = LoadedModel(engine, text, facts)
        engine.start(self._post.deliver)

    async def close(self) -> None:
        """End what still runs and wait for the engine's thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._loaded is not None:
            await asyncio.to_thread(self._loaded.engine.close)

    def health(self) -> tuple[Stage, str]:
        """The stage, with a fault of the engine taken into account at once."""
        if self._loaded is not None and self._loaded.engine.fault is not None:
            return Stage.FAILED, self._loaded.engine.fault
        return self._stage()

    def serving(self) -> LoadedModel:
        """Raises ApiError 503 unless requests are answered."""
        stage, message = self.health()
        if stage in ANSWERING and self._loaded is not None:
            return self._loaded
        detail = f": {message}" if message else ""
        raise unavailable(
            f"the engine is not serving ({stage}{detail})",
            code="engine_fault" if stage is Stage.FAILED else "engine_not_ready",
            retry_after_seconds=self.settings.retry_after_seconds,
        )

    def check_model(self, name: str | None) -> None:
        if name is not None and name != self.model_name:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                f"the model {name!r} does not exist here; this server has {self.model_name!r}",
                param="model",
                code="model_not_found",
            )

    def generation(self, choices: list[Choice]) -> Generation:
        assert self._loaded is not None
        assert self._post is not None
        return Generation(self._loaded.engine, self._post, self.metrics, choices)

    async def tokenize(self, characters: int, work: Callable[[], T]) -> T:
        """Run work on so much text where it does not hold up the event loop."""
        if characters <= self.settings.inline_characters:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
