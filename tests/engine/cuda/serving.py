"""What requests get from an engine over a CUDA backend, on a GPU and on the interpreted one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pytest

from tests.engine.harness import Engine, Result, sequence
from tests.engine.requests import random_sequence
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_api.resource import Execution
from warmgraph_engine.backends.base import Backend
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.sampling.sampler import SampledToken
from warmgraph_engine.scheduler.sequence import Sequence
from warmgraph_engine.shapes import BucketId
from warmgraph_engine.step import Path, PathReason


@dataclass(kw_only=True)
class Serving:
    """A backend with graphs of some buckets, and as many random requests as a case asks for."""

    backend: Backend
    buckets: list[BucketId]
    requests: int
    longest_prompt: int
    drafts: int = 0
    """Of a verify bucket's sequences."""
    counts: StepCounts = field(default_factory=StepCounts)
    """Of the engine that was run last."""

    def __post_init__(self) -> None:
        self.graphs = GraphTable(
            self.backend,
            [Bucket(kind=kind, size=size, mode=BucketMode.EAGER) for kind, size in self.buckets],
            speculative_tokens=self.drafts,
        )
        for bucket in self.graphs.ids():
            assert self.graphs.capture(bucket), self.graphs[bucket].bucket.reason

    @contextmanager
    def engine(
        self, execution: Execution = Execution.GRAPHS, *, speculative_tokens: int = 0
    ) -> Iterator[Engine]:
        """Running. At its end nothing of a request may be left."""
        self.counts = StepCounts()
        executor = GraphExecutor(self.backend, self.graphs, self.counts, execution=execution)
        engine = Engine(
            executor=executor,
            sampler=self.backend.sampler,
            speculative_tokens=speculative_tokens,
            far_rows=0,  # two steps ahead with any number of rows
        )
        engine.loop.start(engine.collect)
        try:
            yield engine
        finally:
            engine.loop.close()
        assert engine.faults == []
        assert engine.loop._scheduler.pool.used == 0
        assert not engine.kept_by_sampler

    def request(self, number: int) -> Sequence:
        return random_sequence(
            number,
            vocabulary=self.backend.limits.vocabulary,
            longest_prompt=self.longest_prompt,
        )

    @cached_property
    def alone(self) -> list[Result]:
        """What each request gets by itself, without graphs. Not while an engine runs."""
        with self.engine(Execution.EAGER) as engine:
            return [engine.generate(self.request(n))[0] for n in range(self.requests)]

    def steps(self, path: Path, reason: PathReason, kind: StepKind | None = None) -> int:
        return sum(
            count
            for (of, _, took, why), count in self.counts.steps.items()
            if (took, why) == (path, reason) and kind in (None, of)
        )


def told(results: Iterable[Result], number: Callable[[list[float]], Any] = list) -> list[Any]:
    """What requests got, with `number` of each token's log-probabilities."""

    def token(of: SampledToken) -> Any:
        if of.logprob is None:
            return of.token_id
        best, logprobs = [each for each, _ in of.logprob.top], [each for _, each in of.logprob.top]
        return of.token_id, best, number([of.logprob.logprob, *logprobs])

    return [
        ([token(each) for each in result.tokens], result.prompt_logprobs, result.finish)
        for result in results
    ]


def nearly(logprobs: list[float]) -> Any:
    """exp() is the GPU's own, and not the one of the CPU, which scores tokens beside drafts."""
    return pytest.approx(logprobs, abs=1e-5)


def check_joining_and_leaving(serving: Serving, *, speculative_tokens: int = 0) -> Engine:
    """Requests come at random, some are cancelled, and each of the others gets what it gets alone:
    tokens, log-probabilities and the reason of its end."""
    number_of = nearly if speculative_tokens else list
    dice, alone = random.Random(speculative_tokens), serving.alone
    doomed = set(dice.sample(range(serving.requests), 1 + serving.requests // 6))
    with serving.engine(speculative_tokens=speculative_tokens) as engine:
        sequences: list[Sequence] = []
        for number in range(serving.requests):
            sequences.append(serving.request(number))
            engine.loop.submit([sequences[-1]])
            if number not in doomed and dice.random() < 0.1:
                engine.wait([sequences[-1]])
            if dice.random() < 0.3:
                engine.loop.cancel([s for i, s in enumerate(sequences) if i in doomed])
        engine.loop.cancel([sequences[number] for number in doomed])
        engine.wait(s for i, s in enumerate(sequences) if i not in doomed)
        after = engine.generate(serving.request(0))
        assert told(after) == told(alone[:1], number_of)
    for number, expected in enumerate(alone):
        got = engine.result(sequences[number])
        assert got.error is None, number
        if number in doomed:
            so_far = replace(expected, tokens=expected.tokens[: len(got.tokens)])
            [(tokens, *_)], [(wanted, *_)] = told([got]), told([so_far], number_of)
            assert tokens == wanted, number
        else:
            assert told([got]) == told([expected], number_of), number
    return engine


def check_switching(serving: Serving) -> None:
    """Graphs are switched off and on while requests run, which notice nothing."""
    dice, alone = random.Random(3), serving.alone
    with serving.engine() as engine:
        sequences = [serving.request(number) for number in range(serving.requests)]
        for one in sequences:
            engine.loop.submit([one])
            engine.executor.set_execution(dice.choice(list(Execution)))
            if dice.random() < 0.2:
                engine.wait([one])
        assert engine.wait(sequences) == alone
        # Whatever steps the switches met: one request on each side of one.
        for execution in (Execution.GRAPHS, Execution.EAGER):
            engine.executor.set_execution(execution)
            assert engine.generate(serving.request(0)) == alone[:1]
    assert serving.steps(Path.EAGER, PathReason.GRAPHS_OFF)
    assert serving.steps(Path.EXACT, PathReason.BUCKET)


def check_outside_buckets(serving: Serving) -> None:
    """More sequences than the largest decode bucket has, and more logits than any has: both run
    eagerly, are counted, and give what graphs give where they hold the step."""
    most = max(size for kind, size in serving.buckets if kind is StepKind.DECODE)
    sizes = {"max_tokens": 6}
    prompts = [[number + 1, 7, 5] for number in range(most + 1)]
    with serving.engine() as engine:
        alone = [engine.generate(sequence(prompt, **sizes))[0] for prompt in prompts]
    assert not serving.steps(Path.EAGER, PathReason.NO_BUCKET, StepKind.DECODE)
    with serving.engine() as engine:
        together = [sequence(prompt, **sizes) for prompt in prompts]
        engine.loop.submit(together)
        assert engine.wait(together) == alone
    assert serving.steps(Path.EAGER, PathReason.NO_BUCKET, StepKind.DECODE)
    prompt = [5 + i % 7 for i in range(serving.backend.limits.max_batch_size + 2)]
    with serving.engine() as engine:
        [plain] = engine.generate(sequence(prompt, **sizes))
        assert not serving.steps(Path.EAGER, PathReason.ALL_LOGITS)
        [scored] = engine.generate(sequence(prompt, prompt_logprobs=1, **sizes))
    assert serving.steps(Path.EAGER, PathReason.ALL_LOGITS)
    assert scored.tokens == plain.tokens
    assert len(scored.prompt_logprobs) == len(prompt) - 1


def _odd_settings(vocabulary: int) -> list[dict[str, Any]]:
    return [
        {"temperature": 2.0, "seed": 1},
        {"temperature": 1.0, "seed": 2, "top_k": 2, "top_p": 0.5, "min_p": 0.2},
        {"presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 2.0},
        {"logit_bias": {3: 100.0}, "logprobs": 2},
        {"stop_token_ids": frozenset(range(0, vocabulary, 2))},
        {"min_tokens": 2, "stop_token_ids": frozenset(range(vocabulary))},
        {"prompt_logprobs": 1},
    ]


def check_settings_stay_with_their_request(serving: Serving, *, tokens: int) -> None:
    """A plain request beside an odd one, and after it in its slot and its blocks, is the same."""
    plain = {"prompt": [5, 6, 7, 5, 6], "max_tokens": tokens}
    with serving.engine() as engine:
        [expected] = engine.generate(sequence(**plain))
        seeded = {**plain, "temperature": 1.0, "seed": 9}
        [drawn] = engine.generate(sequence(**seeded))
        for settings in _odd_settings(serving.backend.limits.vocabulary):
            odd, beside = sequence([9, 9, 5], max_tokens=tokens, **settings), sequence(**plain)
            engine.loop.submit([odd, beside])
            engine.wait([odd, beside])
            assert engine.result(beside) == expected, settings
            [after, again] = engine.generate(sequence(**seeded), sequence(**plain))
            assert after == drawn, settings
            assert again == expected, settings
