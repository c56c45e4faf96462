"""The tokens that a step draws, against the CPU's sampler on the same logits.

Run by test_program.py, in a process where Triton interprets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.cuda.interpreted import run
from tests.engine.cuda.models import SlotRows, llama, settings
from warmgraph_api.report import StepKind
from warmgraph_engine.backends.cuda.inputs import NO_DRAW, draw_fields
from warmgraph_engine.backends.cuda.launches import Launches
from warmgraph_engine.backends.cuda.layout import DRAW_FIELDS, SCORE_FIELDS, geometry
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.device import DeviceSampler
from warmgraph_engine.sampling.logprobs import LEAST_LOGPROB
from warmgraph_engine.sampling.params import MAX_TOP_LOGPROBS, SamplingParams
from warmgraph_engine.sampling.sampler import Draw
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import StepDraw

SLOTS = 8
FEW, SMALL = 70, {"BLOCK": 64, "SAMPLE_BLOCK": 32}
MANY = 5000
"""More than one block of the sampling kernel, and not a whole number of them."""


class Device:
    """What a step of up to SLOTS draws finds and leaves."""

    def __init__(self, vocabulary: int) -> None:
        by_slot = (SLOTS, vocabulary)
        self.memory = {
            "buffers.set": torch.ones(1, dtype=torch.int32),
            "slots.bias": torch.full(by_slot, torch.nan),
            "slots.counts": torch.full(by_slot, -1, dtype=torch.int32),
            "work.changed": torch.full(by_slot, torch.nan),
            "results.drawn": torch.full((2, SLOTS), -7, dtype=torch.int32),
            "results.scores": torch.full((2, SLOTS, SCORE_FIELDS), torch.nan, dtype=torch.float64),
            "buffers.last_drawn": torch.full((SLOTS,), -7, dtype=torch.int32),
        }
        self.slots = SlotRows(self.memory)
        self._vocabulary = vocabulary

    def draw(
        self, logits: np.ndarray, draws: Sequence[tuple[float, ...]], **constants: int
    ) -> None:
        options = settings(max_batch_size=SLOTS)
        shape = StepShape(
            kind=StepKind.PREFILL, tokens=SLOTS, sequences=len(draws), logit_rows=len(logits)
        )
        fields = np.zeros((DRAW_FIELDS, SLOTS))
        fields[:, : len(draws)] = np.array(draws).T
        self.memory["buffers.logits"] = torch.from_numpy(np.ascontiguousarray(logits))
        self.memory["buffers.draws"] = torch.from_numpy(fields)
        launch = Launches(llama(vocab_size=self._vocabulary), geometry(options), shape).draw()
        run([replace(launch, constants={**launch.constants, **constants})], self.memory)
        assert (self.memory["results.drawn"][0] == -7).all(), "the other set is another step's"

    @property
    def tokens(self) -> list[int]:
        """By slot."""
        return self.memory["results.drawn"][1].tolist()

    @property
    def last(self) -> list[int]:
        return self.memory["buffers.last_drawn"].tolist()


def drawn(
    logits: np.ndarray, draws: Sequence[tuple[float, ...]], **constants: int
) -> tuple[list[int], list[int]]:
    """What the kernel leaves in the results of set 1 and in last_drawn, by slot."""
    device = Device(logits.shape[1])
    device.draw(logits, draws, **constants)
    return device.tokens, device.last


def fields(row: int, slot: int, *how: float) -> tuple[float, ...]:
    """A draw: scale, top_k, top_p, min_p, number."""
    names = ("scale", "top_k", "top_p", "min_p", "number")
    return draw_fields(row, slot, StepDraw(**dict(zip(names, how, strict=True))))  # type: ignore[arg-type]


def greedy(row: int, slot: int) -> tuple[float, ...]:
    return fields(row, slot, 0, 0, 1, 0, 0)


def test_the_likeliest_token_is_drawn_and_of_equals_the_lowest() -> None:
    logits = np.random.default_rng(0).normal(size=(4, 9000)).astype(np.float32)
    logits[1, [8192 + 20, 20, 8999]] = 9  # in two blocks of the kernel, the first in one place
    logits[2, [3, 4]] = 9
    logits[3] = -np.inf
    logits[3, 8700] = -5
    tokens, last = drawn(logits, [greedy(i, 2 * i) for i in range(4)])
    assert tokens == [int(logits[0].argmax()), -7, 20, -7, 3, -7, 8700, -7]
    assert last == tokens


def test_a_sequence_that_draws_nothing_leaves_every_slot_as_it_was() -> None:
    logits = np.zeros((2, FEW), dtype=np.float32)
    logits[1, 5] = 1
    tokens, last = drawn(logits, [NO_DRAW, greedy(1, 3), NO_DRAW])
    assert tokens == last == [-7, -7, -7, 5, -7, -7, -7, -7]


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_logits_that_are_no_numbers_draw_no_token_and_leave_the_next_step_a_valid_one(
    scale: float,
) -> None:
    logits = np.zeros((5, MANY), dtype=np.float32)
    logits[0, 4999] = np.nan
    logits[1, 3] = np.inf
    logits[2] = -np.inf
    logits[3, 0] = -np.inf
    logits[4, 0] = np.nan
    draws = [fields(i, i, scale, 0, 1, 0, 0.5) for i in range(5)]
    tokens, last = drawn(logits, draws)
    assert tokens[:5] == [-1, -1, -1, tokens[3], -1]
    assert tokens[3] > 0
    assert last[:5] == [0, 0, 0, tokens[3], 0]


def expected(row: np.ndarray, params: SamplingParams, key: tuple[int, int], position: int) -> int:
    sequence = SimpleNamespace(
        id=1, params=params, random_key=key, tokens=[0] * (1 + position), prompt_length=1
    )
    sampler = CpuSampler(vocabulary=row.size)
    return sampler.sample(row[None, :], [Draw(0, sequence, position)]).read()[0].token_id


LARGEST = 1 << 17
"""Tokens of more than any vocabulary here."""


def settings_of(row: int, slot: int, params: SamplingParams, key, position) -> tuple[float, ...]:
    """A draw's fields as the device's sampler and the input buffers make them."""
    sequence = SimpleNamespace(id=1, params=params, random_key=key)
    draw = DeviceSampler(vocabulary=LARGEST).in_step(Draw(row, sequence, position, slot))
    assert draw is not None
    return draw_fields(row, slot, draw)


PARAMS = [
    {},
    {"temperature": 0.3},
    {"temperature": 1e-9},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 40, "temperature": 2.0},
    {"top_k": FEW},
    {"top_k": MANY},
    {"top_p": 0.9},
    {"top_p": 1e-9},
    {"top_p": 0.5, "temperature": 2.0},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 20, "top_p": 0.7, "min_p": 0.05},
    {"top_k": 3, "top_p": 0.99},
    {"top_p": 0.8, "min_p": 0.2},
]


def spread(vocabulary: int, seed: int) -> np.ndarray:
    """Rows as models give them and as they should not: wide, narrow, with ties, with an unused end,
    nearly flat, nearly certain."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(SLOTS, vocabulary)).astype(np.float32)
    rows[0] *= 3
    rows[1] = np.round(rows[1])
    rows[2] = 0
    rows[3, vocabulary // 2 :] = -np.inf
    rows[4, 17] = 30
    rows[5] *= 50
    rows[6] = -np.abs(rows[6]) * 1e-3
    rows[7] = np.round(rows[7] * 4) / 4 + 100
    return rows


@pytest.mark.parametrize("given", PARAMS, ids=str)
def test_a_sampled_token_is_the_one_that_the_cpu_draws(given: dict) -> None:
    check(FEW, given, **SMALL)


@pytest.mark.parametrize(
    "given", [{}, {"top_k": MANY}, {"top_k": 20, "top_p": 0.7, "min_p": 0.05}], ids=str
)
def test_so_it_is_of_a_vocabulary_of_several_blocks_of_full_size(given: dict) -> None:
    check(MANY, given)


def check(vocabulary: int, given: dict, **constants: int) -> None:
    params = SamplingParams(max_tokens=9, **given)
    logits = spread(vocabulary, seed=1)
    keys = [(7, row) for row in range(SLOTS)]
    draws = [settings_of(row, row, params, keys[row], 5) for row in range(SLOTS)]
    tokens, last = drawn(logits, draws, **constants)
    assert tokens == [expected(logits[row], params, keys[row], 5) for row in range(SLOTS)]
    assert last == tokens


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
@pytest.mark.parametrize(
    "limits", [(0, 1, 0), (4, 1, 0), (0, 0.9, 0), (0, 1, 0.1), (9, 0.5, 0.01)], ids=str
)
def test_the_edges_of_the_random_number_draw_possible_tokens(
    number: float, limits: tuple[float, ...]
) -> None:
    logits = np.full((1, FEW), -200, dtype=np.float32)
    logits[0, [3, 60]] = 0
    tokens, _ = drawn(logits, [fields(0, 0, 1, *limits, number)], **SMALL)
    assert tokens[0] in {3, 60}


@pytest.mark.parametrize("top_p", [0.5, 0.51, 0.99])
def test_of_equal_tokens_at_the_edge_of_the_nucleus_the_lowest_ids_are_kept(top_p: float) -> None:
    """As many as reach its mass, and no more: the largest random number draws the last one."""
    logits = np.zeros((2, FEW), dtype=np.float32)
    logits[1, :] = -1
    logits[1, 60:] = 0
    tokens, _ = drawn(
        logits, [fields(i, i, 1, 0, top_p, 0, 1 - 2.0**-53) for i in range(2)], **SMALL
    )
    likelier = 10
    rest = top_p * (likelier + 60 * np.exp(-1)) - likelier
    assert tokens[0] == int(np.ceil(top_p * FEW)) - 1
    assert tokens[1] == 69, "the ids of the likelier ones are the highest"
    tokens, _ = drawn(logits[1:], [fields(0, 0, 1, 0, top_p, 0, 0.0)], **SMALL)
    assert tokens[0] == 0
    # Just below the share of the tokens at the edge, the last of them.
    kept = int(np.ceil(rest / np.exp(-1)))
    share = kept * np.exp(-1) / (kept * np.exp(-1) + likelier)
    tokens, _ = drawn(logits[1:], [fields(0, 0, 1, 0, top_p, 0, share - 1e-6)], **SMALL)
    assert tokens[0] == kept - 1


def test_a_row_gets_the_same_token_alone_and_among_neighbours() -> None:
    params = SamplingParams(max_tokens=9, top_p=0.9, top_k=30)
    logits = spread(FEW, seed=5)
    draws = [settings_of(row, row, params, (9, row), 0) for row in range(SLOTS)]
    together, _ = drawn(logits, draws, **SMALL)
    for row in range(SLOTS):
        alone, _ = drawn(logits[row : row + 1], [(0, 4, *draws[row][2:])], **SMALL)
        assert alone[4] == together[row]


CHANGES = [
    {"logit_bias": {3: 100.0, 17: -100.0, 69: 0.1}},
    {"min_tokens": 6, "stop_token_ids": frozenset(range(0, FEW, 2))},
    {"min_tokens": 6, "stop_token_ids": frozenset({17}), "logit_bias": {17: 100.0, 18: 1 / 3}},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"presence_penalty": 0.3},
    {"frequency_penalty": 1 / 3},
    {"presence_penalty": -2.0, "frequency_penalty": -0.1, "repetition_penalty": 2.0},
    {"logit_bias": {5: 3.0}, "frequency_penalty": 2.0, "top_p": 0.8, "top_k": 30},
    {"logprobs": 0},
    {"logprobs": 20, "frequency_penalty": 0.7, "logit_bias": {4: 2.0}},
]


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("given", CHANGES, ids=str)
def test_changed_logits_draw_what_the_cpu_draws_for_token_after_token(
    given: dict, temperature: float
) -> None:
    """The device counts what it draws; the CPU is told of each token."""
    params = SamplingParams(**{"max_tokens": 99, "temperature": temperature, **given})
    chance = np.random.default_rng(2)
    prompts = [chance.integers(0, FEW, 20).tolist() for _ in range(SLOTS)]
    sequences = [
        SimpleNamespace(
            id=row,
            params=params,
            random_key=(7, row),
            tokens=prompt + chance.integers(0, FEW, 4).tolist(),
            prompt_length=len(prompt),
        )
        for row, prompt in enumerate(prompts)
    ]
    device, cpu = Device(FEW), CpuSampler(vocabulary=FEW)
    sampler = DeviceSampler(vocabulary=FEW)
    for position in range(4, 8):
        logits = spread(FEW, seed=position)
        draws = [
            Draw(row, one, position, SLOTS - 1 - row, first=position == 4)
            for row, one in enumerate(sequences)
        ]
        rows = []
        for each in draws:
            how = sampler.in_step(each)
            assert how is not None
            if how.bias is not None:
                device.slots.set_bias(each.slot, how.bias)
            if how.counts is not None:
                device.slots.set_counts(each.slot, how.counts)
            rows.append(draw_fields(each.row, each.slot, how))
        device.draw(logits, rows, **SMALL)
        expected = cpu.sample(logits, draws).read()
        assert [device.tokens[each.slot] for each in draws] == [t.token_id for t in expected]
        if params.logprobs is not None:
            scores = device.memory["results.scores"][1].numpy()
            for each, token in zip(draws, expected, strict=True):
                assert scored(scores[each.slot], params.logprobs) == near(token.logprob)
        for one, token in zip(sequences, expected, strict=True):
            one.tokens.append(token.token_id)


def scored(fields: np.ndarray, alternatives: int) -> tuple[float, list[int], list[float]]:
    """Log-probability of the token drawn, the likeliest ones and theirs."""
    logit, largest, mass = fields[:3]
    total = largest + np.log(mass)
    best = fields[3:][:alternatives].astype(int).tolist()
    logits = np.maximum(fields[3 + MAX_TOP_LOGPROBS :][:alternatives] - total, LEAST_LOGPROB)
    return logit - total, best, logits.tolist()


def near(expected: Any) -> Any:
    tokens = [token for token, _ in expected.top]
    logprobs = [logprob for _, logprob in expected.top]
    return pytest.approx(expected.logprob, abs=1e-5), tokens, pytest.approx(logprobs, abs=1e-5)


def test_where_only_what_is_ruled_out_was_possible_some_token_is_drawn() -> None:
    """As the CPU does: it is no fault of the model."""
    logits = np.full((1, FEW), -np.inf, dtype=np.float32)
    logits[0, [3, 60]] = 0
    device = Device(FEW)
    device.slots.set_bias(0, {3: -np.inf, 60: -np.inf})
    device.draw(logits, [draw_fields(0, 0, StepDraw(biased=True))], **SMALL)
    assert device.tokens[0] == 0
