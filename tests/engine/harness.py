"""Runs sequences through a real engine loop and collects what each of them gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from tests.engine.device import ToyDevice
from tests.engine.toy import ToyExecutor, limits
from warmgraph_engine.loop import EngineFaultError, EngineLoop, Output
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.device import DeviceSampler
from warmgraph_engine.sampling.params import SamplingParams
from warmgraph_engine.sampling.randomness import random_key
from warmgraph_engine.sampling.sampler import SampledToken, TokenLogprob
from warmgraph_engine.scheduler.sequence import FinishReason, Sequence
from warmgraph_engine.step import Limits

PATIENCE_SECONDS = 60
"""For a busy machine; nothing here takes longer than a second by itself."""


@dataclass
class Result:
    tokens: list[SampledToken] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None
    error: EngineFaultError | None = None
    cancelled: bool = False

    @property
    def ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]


class Engine:
    """An engine loop with a place where its outputs gather; over the toy model, if no other
    executor is given. With `run_ahead` the toy is on a device that draws tokens itself."""

    def __init__(
        self,
        facts: Limits | None = None,
        *,
        run_ahead: bool = False,
        executor: Any = None,
        sampler: Any = None,
        habit: float = 0.0,
        **settings: int,
    ) -> None:
        """With an executor, over that one instead."""
        on_device = (ToyDevice, DeviceSampler) if run_ahead else (ToyExecutor, CpuSampler)
        self.executor = executor or on_device[0](facts or limits(), habit=habit)
        self.sampler = sampler or on_device[1](vocabulary=self.executor.limits.vocabulary)
        self.registry = CollectorRegistry()
        self.faults: list[str] = []
        self.metrics = EngineMetrics(self.registry)
        self.loop = EngineLoop(
            self.executor,
            self.sampler,
            metrics=self.metrics,
            on_fault=self.faults.append,
            **settings,
        )
        self.results: dict[int, Result] = {}
        self._changed = threading.Condition()

    def collect(self, outputs: list[Output]) -> None:
        with self._changed:
            for output in outputs:
                result = self.results.setdefault(output.sequence.id, Result())
                if output.token is not None:
                    result.tokens.append(output.token)
                result.prompt_logprobs += output.prompt_logprobs
                result.finish = result.finish or output.finish
                result.error = result.error or output.error
            self._changed.notify_all()

    @property
    def kept_by_sampler(self) -> set[int]:
        """Sequences that the sampler still keeps something of."""
        if isinstance(self.sampler, CpuSampler):
            return {*self.sampler._counts}
        return {*self.sampler._numbers, *self.sampler._host._counts, *self.sampler._drawn_here}

    def result(self, sequence: Sequence) -> Result:
        return self.results.get(sequence.id, Result())

    def wait(self, sequences: Iterable[Sequence]) -> list[Result]:
        """Until all of them have ended."""
        wanted = list(sequences)

        def ended() -> bool:
            results = [self.result(sequence) for sequence in wanted]
            return all(result.finish or result.error for result in results)

        with self._changed:
            assert self._changed.wait_for(ended, PATIENCE_SECONDS)
        return [self.result(sequence) for sequence in wanted]

    def value(self, name: str) -> float:
        """A metric, named without its prefix."""
        value = self.registry.get_sample_value(f"warmgraph_{name}")
        assert value is not None, name
        return value

    def generate(self, *sequences: Sequence) -> list[Result]:
        for sequence in sequences:
            self.loop.submit([sequence])
        return self.wait(sequences)


def running_engine(facts: Limits | None = None, **settings: Any):
    return started(Engine(facts, **settings))


def once_closing(engine: Engine, act: Callable[[], object]) -> None:
    """Act when close() has been called, on another thread."""

    def wait() -> None:
        while not engine.loop._closing:
            time.sleep(0.001)
        act()

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def started(engine: Engine):
    """Runs the engine's thread. What it finds there at once has to be set before."""
    engine.loop.start(engine.collect)
    try:
        yield engine
    finally:
        if isinstance(engine.executor, ToyExecutor):
            engine.executor.gate.set()
        engine.loop.close()


def sequence(prompt: list[int], *, choice: int = 0, **params) -> Sequence:
    settings = SamplingParams(**({"max_tokens": 8, "temperature": 0.0} | params))
    return Sequence(
        tokens=list(prompt), params=settings, random_key=random_key(settings.seed, choice)
    )
