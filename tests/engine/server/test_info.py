from __future__ import annotations

import asyncio

from tests.engine.server.serving import MODEL


async def test_tokenize_and_detokenize_are_inverse(served):
    _, tokens = await served.post("/tokenize", {"prompt": "hello 😀 world", "model": MODEL})
    assert tokens["count"] == len(tokens["tokens"])
    assert tokens["max_model_len"] == 128
    _, text = await served.post("/detokenize", {"tokens": tokens["tokens"]})
    assert text == {"prompt": "hello 😀 world"}


async def test_tokenize_shows_a_chat_as_the_model_sees_it(served):
    _, tokens = await served.post("/tokenize", {"messages": [{"role": "user", "content": "hello"}]})
    _, text = await served.post("/detokenize", {"tokens": tokens["tokens"]})
    assert text["prompt"] == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


async def test_tokenize_and_detokenize_refuse_what_makes_no_sense(served):
    for path, body in [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "x", "messages": []}),
        ("/tokenize", {"messages": []}),
        ("/detokenize", {"tokens": [300]}),
        ("/detokenize", {"tokens": "x"}),
        ("/detokenize", {"token": [1]}),
    ]:
        status, answer = await served.post(path, body)
        assert status == 400
        assert answer["error"]["message"]


async def test_the_version_is_that_of_the_distribution(served):
    response = await served.client.get("/version")
    assert (await response.json())["version"].count(".") == 2


async def test_metrics_move_with_the_requests(served):
    await served.complete(max_tokens=5, ignore_eos=True)
    await served.openai.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=3,
        extra_body={"ignore_eos": True},
    )
    await served.until(lambda: served.value("warmgraph_requests_total", outcome="completed") == 2)
    assert served.value("warmgraph_generated_tokens_total") == 8
    assert served.value("warmgraph_prompt_tokens_total") > 10
    assert served.value("warmgraph_time_to_first_token_seconds_count") == 2
    assert served.value("warmgraph_inter_token_latency_seconds_count") == 6
    assert served.value("warmgraph_request_seconds_count") == 2
    assert served.value("warmgraph_kv_blocks") == 64
    text = await (await served.client.get("/metrics")).text()
    assert 'warmgraph_requests_total{outcome="completed"} 2.0' in text


async def test_gauges_show_what_runs_and_waits(serve):
    served = await serve(max_batch_size=1)
    served.engine.executor.gate.clear()
    body = {"model": MODEL, "prompt": "hello", "max_tokens": 2}
    requests = [asyncio.create_task(served.post("/v1/completions", body)) for _ in range(3)]
    await served.until(lambda: served.engine.loop.load().in_flight == 3)
    await served.until(lambda: served.value("warmgraph_running_sequences") == 1)
    assert served.value("warmgraph_waiting_sequences") == 2
    assert served.value("warmgraph_requests_in_flight") == 3
    assert served.value("warmgraph_kv_blocks_used") == 1
    served.engine.executor.gate.set()
    await asyncio.gather(*requests)
    await served.until(lambda: served.value("warmgraph_kv_blocks_used") == 0)
