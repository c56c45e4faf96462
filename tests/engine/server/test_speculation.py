"""A client sees no difference between a server with speculative decoding and one without."""

from __future__ import annotations

import pytest

from tests.engine.server.serving import MODEL

HABIT = 12.0
PROMPTS = ["hello world", "abcde" * 3, "xyz xyz "]


@pytest.fixture
async def servers(serve):
    """One that decodes token by token, and one that drafts."""
    return await serve(habit=HABIT), await serve(habit=HABIT, speculative_tokens=6)


def bare(answer):
    """Without what differs between any two answers."""
    return {name: value for name, value in answer.items() if name not in ("id", "created")}


WISHES = [
    {"temperature": 0},
    {"temperature": 1, "seed": 3, "n": 3, "logprobs": 2},
    {"temperature": 1, "seed": 4, "frequency_penalty": 0.1, "repetition_penalty": 1.1},
    {"temperature": 0, "min_tokens": 20, "stop": ["c", "Z"]},
    {"temperature": 0.5, "seed": 5, "echo": True, "logprobs": 0},
]


@pytest.mark.parametrize("wishes", WISHES)
async def test_the_whole_answer_is_the_same(servers, wishes):
    body = {"model": MODEL, "prompt": PROMPTS, "max_tokens": 60} | wishes
    answers = []
    for server in servers:
        status, answer = await server.post("/v1/completions", body)
        assert status == 200, answer
        answers.append(bare(answer))
    assert answers[0] == answers[1]
    assert servers[1].engine.value("spec_decode_accepted_tokens_total") > 0
    await servers[1].until(lambda: servers[1].blocks_used == 0)


@pytest.mark.parametrize("wishes", WISHES)
async def test_a_stream_brings_the_same_in_the_same_order(servers, wishes):
    fields = {"prompt": PROMPTS[1], "max_tokens": 60, "stream_options": {"include_usage": True}}
    joined = []
    for server in servers:
        *events, usage, done = await server.events("/v1/completions", **fields | wishes)
        assert done == "[DONE]"
        choices = {}
        for choice in (event["choices"][0] for event in events):
            text, reason, names = choices.get(choice["index"], ("", None, []))
            assert reason is None, "nothing follows the end"
            names += (choice["logprobs"] or {}).get("tokens", [])
            choices[choice["index"]] = (text + choice["text"], choice["finish_reason"], names)
        joined.append((choices, usage["usage"]))
    assert joined[0] == joined[1]
    assert servers[1].engine.value("spec_decode_accepted_tokens_total") > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_inside_an_accepted_run_cuts_text_usage_and_logprobs(servers, stream):
    """Wherever in a run it begins and ends."""
    drafting = servers[1]
    fields = {"prompt": "abcde" * 3, "max_tokens": 40, "temperature": 0, "logprobs": 0}
    full = (await servers[0].complete(**fields))["text"]
    for begin in range(0, len(full) - 3, 3):
        stop = full[begin : begin + 2]
        ends = []
        for server in servers:
            if stream:
                events = await server.events(
                    "/v1/completions",
                    stop=stop,
                    stream_options={"include_usage": True},
                    **fields,
                )
                entries = [event["choices"][0] for event in events[:-2]]
                ends.append(
                    (
                        "".join(entry["text"] for entry in entries),
                        [name for entry in entries for name in entry["logprobs"]["tokens"]],
                        events[-2]["usage"],
                    )
                )
            else:
                _, answer = await server.post(
                    "/v1/completions", {"model": MODEL, "stop": stop, **fields}
                )
                [entry] = answer["choices"]
                ends.append((entry["text"], entry["logprobs"]["tokens"], answer["usage"]))
        assert ends[0] == ends[1]
        assert ends[0][0] == full[: full.index(stop)]
    await drafting.until(lambda: drafting.blocks_used == 0)


async def test_acceptance_is_in_the_metrics(servers):
    await servers[1].complete(prompt="abcde" * 3, max_tokens=60)
    response = await servers[1].client.get("/metrics")
    text = await response.text()
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        [line] = [n for n in text.splitlines() if n.startswith(f"warmgraph_spec_decode_{name}_t")]
        assert float(line.split()[1]) > 0
