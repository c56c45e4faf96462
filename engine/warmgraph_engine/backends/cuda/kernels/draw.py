"""The tokens that a step draws from its logits.

A program has one row and goes over it several times, out of the L2 cache. Where a slot's bias or
penalties change it, the changed row is written down once. What it computes is what sampling/cpu.py
defines, with sums in float64 as there; only exp() is the GPU's own, and the last bit in float64 of
a penalty of both kinds. So a sampled token is another than the CPU's if the random number lies
within about a millionth of the border between two tokens, and the likeliest token is the same.

The order of likelihood is that of `key`, the bits of -score, in which a smaller key is likelier. A
truncation keeps the keys below a cut, and of those equal to it the first few in order of ids.
"""

import triton
import triton.language as tl

from warmgraph_engine.backends.cuda.kernels.common import wait_for_previous

NO_CUT = tl.constexpr(0x7F800000)
"""The bits of infinity: tokens of no probability, which are kept without effect."""


@triton.jit
def _likeliest(row_ptr, vocabulary, BLOCK: tl.constexpr):
    """The largest logit, the lowest id that has it, and whether the row may be drawn from: no NaN,
    and the largest is finite."""
    lanes = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    best_at = tl.full([BLOCK], 0, tl.int32)
    numbers = tl.full([BLOCK], 1, tl.int32)
    for first in range(0, vocabulary, BLOCK):
        at = first + lanes
        x = tl.load(row_ptr + at, mask=at < vocabulary, other=float("-inf"))
        numbers &= (x <= float("inf")).to(tl.int32)  # NaN is not
        larger = x > best
        best = tl.where(larger, x, best)
        best_at = tl.where(larger, at, best_at)
    largest = tl.max(best, 0)
    token = tl.min(tl.where(best == largest, best_at, vocabulary), 0)
    finite = (largest < float("inf")) & (largest > float("-inf"))
    return largest, token, finite & (tl.min(numbers, 0) == 1)


@triton.jit
def _score(row_ptr, first, vocabulary, largest, scale, min_p, BLOCK: tl.constexpr):
    """Keys and weights of a block of tokens; below min_p a weight is 0."""
    at = first + tl.arange(0, BLOCK)
    x = tl.load(row_ptr + at, mask=at < vocabulary, other=float("-inf"))
    score = (x - largest) * scale
    weight = tl.exp(score)
    key = tl.abs(score).to(tl.int32, bitcast=True)
    return key, tl.where(weight >= min_p, weight, 0.0).to(tl.float64)


@triton.jit
def _weight(key, min_p):
    """The weight of a token with this key."""
    weight = tl.exp(-key.to(tl.float32, bitcast=True))
    return tl.where(weight >= min_p, weight, 0.0).to(tl.float64)


@triton.jit
def _below(row_ptr, vocabulary, largest, scale, min_p, cut, BLOCK: tl.constexpr):
    """Number and weight of the tokens with keys below the cut."""
    counts = tl.full([BLOCK], 0, tl.int32)
    weights = tl.full([BLOCK], 0.0, tl.float64)
    for first in range(0, vocabulary, BLOCK):
        key, weight = _score(row_ptr, first, vocabulary, largest, scale, min_p, BLOCK)
        counts += (key < cut).to(tl.int32)
        weights += tl.where(key < cut, weight, 0.0)
    return tl.sum(counts, 0), tl.sum(weights, 0)


@triton.jit
def _cut(
    row_ptr,
    vocabulary,
    largest,
    scale,
    min_p,
    by_count,
    wanted,
    low,
    most,
    BLOCK: tl.constexpr,
    WAYS: tl.constexpr,
):
    """The smallest key from `low` on up to which the tokens reach `wanted`: in number if
    `by_count`, else in weight. `most` is known to reach it. Every pass leaves one of WAYS parts of
    what is possible."""
    ways = tl.arange(0, WAYS)
    while low < most:
        width = (most - low) // WAYS + 1
        edges = low + (ways + 1) * width - 1
        sums = tl.full([BLOCK, WAYS], 0.0, tl.float64)
        for first in range(0, vocabulary, BLOCK):
            key, weight = _score(row_ptr, first, vocabulary, largest, scale, min_p, BLOCK)
            weight = tl.where(by_count, 1.0, weight)
            sums += tl.where(key[:, None] <= edges[None, :], weight[:, None], 0.0)
        reached = (tl.sum(sums, 0) >= wanted) | (edges >= most)
        way = tl.min(tl.where(reached, ways, WAYS), 0)
        most = tl.minimum(most, low + (way + 1) * width - 1)
        low += way * width
    return low


@triton.jit
def _pick(row_ptr, vocabulary, largest, scale, min_p, cut, ties, target, BLOCK: tl.constexpr):
    """The first token, in order of ids, at which the sum of the weights kept is above the target;
    the last one of any weight if rounding leaves none."""
    lanes = tl.arange(0, BLOCK)
    total = tl.full([], 0.0, tl.float64)
    seen = tl.full([], 0, tl.int32)
    token = tl.full([], 0, tl.int32) + vocabulary
    last = tl.full([], 0, tl.int32)
    for first in range(0, vocabulary, BLOCK):
        key, weight = _score(row_ptr, first, vocabulary, largest, scale, min_p, BLOCK)
        at = first + lanes
        tie = (key == cut).to(tl.int32)
        earlier = seen + tl.cumsum(tie, 0) - tie
        kept = (key < cut) | ((key == cut) & (earlier < ties))
        weight = tl.where(kept, weight, 0.0)
        above = (total + tl.cumsum(weight, 0) > target) & (weight > 0.0)
        token = tl.minimum(token, tl.min(tl.where(above, at, vocabulary), 0))
        last = tl.maximum(last, tl.max(tl.where(weight > 0.0, at, 0), 0))
        seen += tl.sum(tie, 0)
        total += tl.sum(weight, 0)
    return tl.where(token < vocabulary, token, last)


@triton.jit
def _sample(
    row_ptr,
    vocabulary,
    largest,
    scale,
    top_k,
    top_p,
    min_p,
    number,
    BLOCK: tl.constexpr,
    WAYS: tl.constexpr,
):
    cut = tl.full([], NO_CUT, tl.int32)
    ties = tl.full([], 0.0, tl.float64) + vocabulary
    total = tl.full([], 0.0, tl.float64)
    for stage in range(2):  # a loop, so that the code of both is there once
        by_count = stage == 0
        wanted = tl.where(by_count, top_k, top_p * total)
        truncates = tl.where(by_count, (top_k > 0) & (top_k < vocabulary), top_p < 1.0)
        before = cut
        low = tl.where(truncates, 0, cut)
        cut = _cut(
            row_ptr, vocabulary, largest, scale, min_p, by_count, wanted, low, cut, BLOCK, WAYS
        )
        count, mass = _below(row_ptr, vocabulary, largest, scale, min_p, cut, BLOCK)
        edge = _weight(cut, min_p)
        if truncates:
            if cut < before:
                ties = tl.full([], 0.0, tl.float64) + vocabulary
            if by_count:
                ties = top_k - count
            elif edge > 0.0:
                ties = tl.minimum(ties, tl.maximum(tl.ceil((wanted - mass) / edge), 1.0))
        total = mass + ties * edge
    return _pick(row_ptr, vocabulary, largest, scale, min_p, cut, ties, number * total, BLOCK)


@triton.jit
def _change(
    row_ptr,
    changed_ptr,
    bias_ptr,
    counts_ptr,
    vocabulary,
    biased,
    repetition,
    presence,
    frequency,
    IN_PROMPT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The row with its slot's bias and penalties, rounded as sampling/penalties.py does."""
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < vocabulary
        x = tl.load(row_ptr + at, mask=inside, other=0.0)
        if biased:
            x += tl.load(bias_ptr + at, mask=inside, other=0.0)
        counts = tl.load(counts_ptr + at, mask=inside, other=0)
        # In float64 and then rounded, both are what float32 gives when it rounds each operation.
        wide, factor = x.to(tl.float64), repetition.to(tl.float64)
        repeated = tl.where(x > 0, wide / factor, wide * factor).to(tl.float32)
        x = tl.where(counts != 0, repeated, x)
        times = counts & (IN_PROMPT - 1)
        penalty = (presence + frequency * times.to(tl.float64)).to(tl.float32)
        x = tl.where(times > 0, x - penalty, x)
        tl.store(changed_ptr + at, x, mask=inside)
    tl.debug_barrier()  # other threads of this program read it


@triton.jit
def _next_likeliest(row_ptr, vocabulary, value, token, BLOCK: tl.constexpr):
    """The largest logit behind (value, token) in descending order, equal ones by id, and its id."""
    lanes = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    best_at = tl.full([BLOCK], 0, tl.int32) + vocabulary
    for first in range(0, vocabulary, BLOCK):
        at = first + lanes
        inside = at < vocabulary
        x = tl.load(row_ptr + at, mask=inside, other=float("-inf"))
        behind = inside & ((x < value) | ((x == value) & (at > token)))
        larger = behind & ((x > best) | (best_at == vocabulary))
        best = tl.where(larger, x, best)
        best_at = tl.where(larger, at, best_at)
    largest = tl.max(best, 0)
    return largest, tl.min(tl.where(best == largest, best_at, vocabulary), 0)


@triton.jit
def _score_token(
    row_ptr,
    scores_ptr,
    vocabulary,
    largest,
    token,
    alternatives,
    MOST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write down what the host makes log-probabilities of: the token's logit, the largest one, the
    sum of exp(logit - largest), and the likeliest tokens with their logits."""
    mass = tl.full([BLOCK], 0.0, tl.float64)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + at, mask=at < vocabulary, other=float("-inf"))
        mass += tl.exp(x - largest).to(tl.float64)
    tl.store(scores_ptr, tl.load(row_ptr + token).to(tl.float64))
    tl.store(scores_ptr + 1, largest.to(tl.float64))
    tl.store(scores_ptr + 2, tl.sum(mass, 0))
    value = tl.full([], float("inf"), tl.float32)
    best = tl.full([], -1, tl.int32)
    for number in range(alternatives):
        value, best = _next_likeliest(row_ptr, vocabulary, value, best, BLOCK)
        tl.store(scores_ptr + 3 + number, best.to(tl.float64))
        tl.store(scores_ptr + 3 + MOST + number, value.to(tl.float64))


@triton.jit
def draw_tokens(
    logits_ptr,
    draws_ptr,
    set_ptr,
    bias_ptr,
    counts_ptr,
    changed_ptr,
    drawn_ptr,
    scores_ptr,
    last_drawn_ptr,
    sequences,
    vocabulary_size,
    BLOCK: tl.constexpr,
    SAMPLE_BLOCK: tl.constexpr,
    WAYS: tl.constexpr,
    MOST: tl.constexpr,
    IN_PROMPT: tl.constexpr,
    PDL: tl.constexpr,
):
    """Draw a token for each sequence that wants one; -1 where its logits hold NaN or infinity.

    logits (rows, vocabulary); draws (12, sequences), float64: row of the logits or -1, slot, scale,
    top_k, top_p, min_p, random number, whether the slot's bias is added, repetition, presence and
    frequency penalty, and how many alternatives to score or -1. bias and counts (slots,
    vocabulary); what is drawn with a penalty is counted. changed (slots, vocabulary) is scratch.
    drawn (sets of host buffers, slots), scores (sets, slots, 3 + 2 * MOST) and last_drawn (slots,).
    grid (sequences of the step,).
    """
    wait_for_previous(PDL)
    settings = draws_ptr + tl.program_id(0)
    row = tl.load(settings).to(tl.int64)
    if row >= 0:
        row_ptr = logits_ptr + row * vocabulary_size
        slot = tl.load(settings + sequences).to(tl.int32)
        scale = tl.load(settings + 2 * sequences).to(tl.float32)
        biased = tl.load(settings + 7 * sequences) > 0.0
        repetition = tl.load(settings + 8 * sequences).to(tl.float32)
        presence = tl.load(settings + 9 * sequences)
        frequency = tl.load(settings + 10 * sequences)
        alternatives = tl.load(settings + 11 * sequences).to(tl.int32)
        penalized = (repetition != 1.0) | (presence != 0.0) | (frequency != 0.0)
        raw_largest, token, drawable = _likeliest(row_ptr, vocabulary_size, BLOCK)
        largest = raw_largest
        of_slot = slot.to(tl.int64) * vocabulary_size
        from_ptr = row_ptr
        if biased | penalized:
            from_ptr = changed_ptr + of_slot
            _change(
                row_ptr,
                from_ptr,
                bias_ptr + of_slot,
                counts_ptr + of_slot,
                vocabulary_size,
                biased,
                repetition,
                presence,
                frequency,
                IN_PROMPT,
                SAMPLE_BLOCK,
            )
            largest, token, _ = _likeliest(from_ptr, vocabulary_size, BLOCK)
        if drawable & (scale > 0.0):
            token = _sample(
                from_ptr,
                vocabulary_size,
                largest,
                scale,
                tl.load(settings + 3 * sequences),
                tl.load(settings + 4 * sequences),
                tl.load(settings + 5 * sequences).to(tl.float32),
                tl.load(settings + 6 * sequences),
                SAMPLE_BLOCK,
                WAYS,
            )
        place = tl.load(set_ptr) * sequences + slot
        if drawable & (alternatives >= 0):
            scores = scores_ptr + place.to(tl.int64) * (3 + 2 * MOST)
            _score_token(
                row_ptr, scores, vocabulary_size, raw_largest, token, alternatives, MOST, BLOCK
            )
        if drawable & penalized:
            count_ptr = counts_ptr + of_slot + token
            tl.store(count_ptr, tl.load(count_ptr) + 1)
        tl.store(drawn_ptr + place, tl.where(drawable, token, -1))
        # The next step may already wait for it, and reads an embedding with it whatever it is.
        tl.store(last_drawn_ptr + slot, tl.where(drawable, token, 0))
