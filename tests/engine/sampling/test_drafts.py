"""A token drawn after drafts is the one that would be drawn if they were output already."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.sampling.rows import draw, sequence
from warmgraph_engine.sampling.cpu import CpuSampler
from warmgraph_engine.sampling.sampler import Draw

VOCABULARY = 12
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=6)
PARAMS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.5]),
        "seed": st.integers(0, 3),
        "top_p": st.sampled_from([1.0, 0.8]),
        "top_k": st.sampled_from([0, 4]),
        "repetition_penalty": st.sampled_from([1.0, 1.5, 0.8]),
        "presence_penalty": st.sampled_from([0.0, 1.5]),
        "frequency_penalty": st.sampled_from([0.0, 0.7, -1.0]),
        "logit_bias": st.sampled_from([{}, {3: 2.0, 5: -100.0}]),
        "min_tokens": st.integers(0, 6),
        "stop_token_ids": st.sampled_from([frozenset(), frozenset({1, 2})]),
        "logprobs": st.sampled_from([None, 0, 2]),
    }
)


@given(prompt=TOKENS, output=TOKENS, drafts=TOKENS, params=PARAMS, noise=st.integers(0, 2**32 - 1))
def test_drafts_count_like_output_in_their_own_row_only(prompt, output, drafts, params, noise):
    logits = np.random.default_rng(noise).standard_normal((len(drafts) + 1, VOCABULARY)) * 2
    logits = logits.astype(np.float32)
    alone = [
        CpuSampler(vocabulary=VOCABULARY).sample(
            logits, [draw(row, sequence(prompt=prompt, output=output + drafts[:row], **params))]
        )
        for row in range(len(drafts) + 1)
    ]
    expected = [drawn.read()[0] for drawn in alone]
    verified = sequence(prompt=prompt, output=output, **params)
    sampler = CpuSampler(vocabulary=VOCABULARY)
    draws = [
        Draw(row, verified, len(output) + row, drafts=tuple(drafts[:row]))
        for row in range(len(logits))
    ]
    drawn = list(sampler.sample(logits, draws).read())
    assert len(drawn) == len(draws)
    right = 1
    while right <= len(drafts) and expected[right - 1].token_id == drafts[right - 1]:
        right += 1
    assert drawn[:right] == expected[:right]
    # And afterwards the sampler knows no more of the drafts.
    again = sampler.sample(logits, [draw(0, verified)]).read()
    assert again == expected[:1]


def test_the_draws_of_a_wrong_draft_cost_nothing():
    class Counting(CpuSampler):
        drawn = 0

        def _draw(self, raw, draw):
            self.drawn += 1
            return super()._draw(raw, draw)

    sampler = Counting(vocabulary=4)
    row = np.array([0.0, 3.0, 1.0, 0.0], dtype=np.float32)
    one = sequence(prompt=[0], temperature=0.0)
    draws = [Draw(number, one, number, drafts=(2, 2, 2)[:number]) for number in range(4)]
    assert len(sampler.sample(np.tile(row, (4, 1)), draws).read()) == 4
    assert sampler.drawn == 1
