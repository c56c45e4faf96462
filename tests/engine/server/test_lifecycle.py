"""Before it serves, while clients come and go, and after a fault."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time

import openai
import pytest

from tests.engine.server.serving import MODEL
from warmgraph_api.report import Stage
from warmgraph_engine.server.service import ServerSettings

LONG = {"model": MODEL, "prompt": "hello", "max_tokens": 100, "ignore_eos": True}


@pytest.mark.parametrize(
    "stage", [s for s in Stage if s not in {Stage.SERVING, Stage.DRAINING}], ids=str
)
async def test_before_it_serves_every_request_gets_503_with_the_stage(serve, stage):
    served = await serve(attach=False)
    served.stage = (stage, "3 of 5 buckets")
    for method, path in [
        ("GET", "/health"),
        ("GET", "/v1/models"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/tokenize"),
    ]:
        response = await served.client.request(method, path)
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        text = await response.text()
        assert stage in text
        assert "3 of 5 buckets" in text
    assert (await served.client.get("/metrics")).status == 200
    assert (await served.client.get("/version")).status == 200


async def test_serving_is_healthy_and_lists_its_model(served):
    response = await served.client.get("/health")
    assert response.status == 200
    assert (await response.json())["stage"] == "Serving"
    models = [model async for model in served.openai.models.list()]
    assert [model.id for model in models] == [MODEL]
    assert (await served.openai.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError):
        await served.openai.models.retrieve("other")


async def test_a_draining_engine_still_serves_but_says_it_is_not_healthy(served):
    served.stage = (Stage.DRAINING, "")
    assert (await served.client.get("/health")).status == 503
    await served.complete(max_tokens=1)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_leaves_frees_its_blocks_at_once(served, stream):
    executor = served.engine.executor
    running = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(step):
        """Once, so that the request cannot end by itself."""
        if step.rows[0].start_position == 21:
            executor.gate.clear()
            loop.call_soon_threadsafe(running.set)
        executor.gate.wait()

    executor.before_step = hold
    request = asyncio.create_task(
        served.client.post("/v1/completions", json=LONG | {"stream": stream, "n": 4})
    )
    await running.wait()
    if stream:
        (await request).close()
    else:
        request.cancel()
    await served.until(lambda: served.engine.loop.load().in_flight == 0)
    executor.gate.set()
    await served.until(lambda: served.blocks_used == 0)
    assert max(row.start_position for step in executor.steps for row in step.rows) < 100
    await served.until(lambda: served.value("warmgraph_requests_total", outcome="cancelled") == 1)
    await served.complete(max_tokens=2)


async def test_a_stop_string_ends_the_work_and_not_only_the_text(served):
    executor = served.engine.executor
    full = (await served.complete(**LONG, seed=2, temperature=1))["text"]
    executor.steps.clear()
    executor.before_step = lambda step: (
        executor.gate.clear() if step.rows[0].start_position == 40 else None,
        executor.gate.wait(),
    )
    choice = await served.complete(**LONG, seed=2, temperature=1, stop=full[3:6])
    assert choice["finish_reason"] == "stop"
    executor.gate.set()
    await served.until(lambda: served.blocks_used == 0)
    assert max(row.start_position for step in executor.steps for row in step.rows) <= 41


async def test_a_hundred_clients_that_leave_at_any_moment_leave_nothing_behind(served):
    async def leave_after(seconds):
        try:
            async with asyncio.timeout(seconds):
                response = await served.client.post("/v1/completions", json=LONG | {"stream": True})
                await response.read()
        except TimeoutError:
            pass

    await asyncio.gather(*(leave_after(0.002 * number) for number in range(100)))
    await served.until(lambda: served.engine.loop.load().in_flight == 0)
    await served.until(lambda: served.blocks_used == 0)
    assert served.service._post._slots == {}
    assert served.engine.loop._sampler._counts == {}


async def test_a_client_that_stops_reading_is_given_up(serve):
    """With small buffers a few hundred tokens fill them, and the write waits for the client."""
    served = await serve(
        settings=ServerSettings(stalled_client_seconds=0.3),
        send_buffer_bytes=4096,
        max_model_length=4000,
        blocks=1000,
    )
    host, port = served.runner.addresses[0]
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(deaf, (host, port))
    body = json.dumps(LONG | {"max_tokens": 3000, "stream": True, "logprobs": 20}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    await loop.sock_sendall(deaf, head.encode() + body)
    await served.until(lambda: served.engine.loop.load().running == 1)
    await served.until(lambda: served.engine.loop.load().in_flight == 0)
    await served.until(lambda: served.blocks_used == 0)
    await served.until(lambda: served.value("warmgraph_requests_total", outcome="cancelled") == 1)
    deaf.close()
    await served.complete(max_tokens=1)


async def test_a_client_that_never_sends_its_body_is_given_up(serve):
    served = await serve(settings=ServerSettings(stalled_client_seconds=0.1))
    host, port = served.runner.addresses[0]
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert await reader.read() == b""
    writer.close()
    assert served.engine.loop.load().requests_total == 0


async def test_too_many_waiting_requests_are_told_to_come_back(serve):
    served = await serve(max_waiting=2, max_batch_size=1)
    served.engine.executor.gate.clear()
    body = {"model": MODEL, "prompt": "hello", "max_tokens": 2}
    first = asyncio.create_task(served.post("/v1/completions", body))
    await served.until(lambda: served.engine.loop.load().running == 1)
    waiting = [asyncio.create_task(served.post("/v1/completions", body)) for _ in range(2)]
    await served.until(lambda: served.engine.loop.load().waiting == 2)
    response = await served.client.post("/v1/completions", json=body)
    assert response.status == 429
    assert int(response.headers["Retry-After"]) > 0
    assert (await response.json())["error"]["code"] == "overloaded"
    assert served.engine.loop.load().in_flight == 3
    served.engine.executor.gate.set()
    assert [status for status, _ in await asyncio.gather(first, *waiting)] == [200] * 3
    assert served.value("warmgraph_requests_total", outcome="overloaded") == 1


async def test_a_request_is_in_flight_until_its_last_byte(served):
    served.engine.executor.gate.clear()
    request = asyncio.create_task(served.post("/v1/completions", LONG))
    await served.until(lambda: served.engine.loop.load().running == 1)
    load = served.engine.loop.load()
    assert (load.waiting, load.idle_seconds, load.requests_total) == (0, 0.0, 1)
    served.engine.executor.gate.set()
    await request
    load = served.engine.loop.load()
    assert (load.in_flight, load.requests_total) == (0, 1)
    assert served.engine.loop.load().idle_seconds > load.idle_seconds > 0


async def test_a_failing_step_ends_its_requests_with_500_and_the_engine_with_503(served):
    served.engine.executor.fail_at = 3
    status, answer = await served.post("/v1/completions", LONG)
    assert status == 500
    assert answer["error"]["code"] == "engine_fault"
    assert "StepError: device lost" in answer["error"]["message"]
    assert served.engine.faults == ["StepError: device lost"]
    status, answer = await served.post("/v1/completions", LONG)
    assert status == 503
    assert "device lost" in answer["error"]["message"]
    response = await served.client.get("/health")
    assert response.status == 503
    assert (await response.json())["stage"] == "Failed"
    assert served.engine.loop.load().in_flight == 0
    assert served.value("warmgraph_requests_total", outcome="failed") == 1


async def test_a_step_that_fails_mid_stream_ends_the_stream_with_an_error_event(served):
    served.engine.executor.fail_at = 20
    with pytest.raises(openai.APIError, match="device lost"):
        async for _ in await served.openai.completions.create(
            model=MODEL,
            prompt="hello",
            max_tokens=100,
            stream=True,
            seed=1,
            extra_body={"ignore_eos": True},
        ):
            pass
    assert served.value("warmgraph_requests_total", outcome="failed") == 1
    assert (await served.client.post("/v1/completions", json=LONG)).status == 503


async def test_tokens_from_before_a_fault_are_sent_before_the_error(served):
    """Also when the handler finds both at once: the engine's thread went on meanwhile."""
    served.engine.executor.fail_at = 20
    response = await served.client.post("/v1/completions", json=LONG | {"stream": True})
    first = await response.content.readline()
    served.engine.executor.gate.set()
    while served.engine.loop.fault is None:
        time.sleep(0.001)  # noqa: ASYNC251 (what arrives is to wait for the handler)
    events = (first + await response.content.read()).decode().split("\n\n")
    chunks = [json.loads(e.removeprefix("data: ")) for e in events if e]
    assert "device lost" in chunks.pop()["error"]["message"]
    assert chunks
    assert served.value("warmgraph_generated_tokens_total") == 19, "of which all text was sent"


async def test_an_unexpected_error_mid_stream_is_an_event_and_not_a_second_response(served):
    shape, streaming, executor = served.text.detokenizer, threading.Event(), served.engine.executor

    def broken(*args, **kwargs):
        detokenizer = shape(*args, **kwargs)
        feed = detokenizer.feed

        def once(tokens):
            if streaming.is_set():
                raise ZeroDivisionError
            text = feed(tokens)
            if text:  # which starts the response
                streaming.set()
            return text

        detokenizer.feed = once
        return detokenizer

    # Tokens may come many at a time: the later ones wait until the first have been seen.
    executor.before_step = lambda _: len(executor.steps) == 50 and streaming.wait(60)
    served.text.detokenizer = broken
    try:
        response = await served.client.post("/v1/completions", json=LONG | {"stream": True})
        text = await response.text()
    finally:
        del served.text.detokenizer
    *_, last, end = text.split("\n\n")
    assert end == ""
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "internal_error"
    assert served.value("warmgraph_requests_total", outcome="failed") == 1
    await served.until(lambda: served.blocks_used == 0)
    await served.complete(max_tokens=1)


async def test_nan_in_the_logits_is_a_fault_of_the_engine(served):
    served.engine.executor.nan_at = 2
    status, answer = await served.post("/v1/completions", LONG)
    assert status == 500
    assert "NaN" in answer["error"]["message"]
    assert (await served.client.get("/health")).status == 503


async def test_closing_ends_what_runs_with_an_error(serve):
    served = await serve()
    served.engine.executor.gate.clear()
    request = asyncio.create_task(served.post("/v1/completions", LONG))
    await served.until(lambda: served.engine.loop.load().running == 1)
    closing = asyncio.create_task(served.service.close())
    await asyncio.sleep(0)
    served.engine.executor.gate.set()
    status, _ = await request
    await closing
    assert status in {200, 500}
    assert served.engine.faults == []


async def test_a_long_prompt_is_tokenized_beside_the_event_loop(serve):
    served = await serve(settings=ServerSettings(inline_characters=10))
    threads = []
    encode = served.text.encode

    def watched(*args, **kwargs):
        threads.append(threading.current_thread().name)
        return encode(*args, **kwargs)

    served.text.encode = watched
    try:
        await served.complete(prompt="short")
        await served.complete(prompt="quite long enough")
    finally:
        del served.text.encode
    assert threads[0] == "MainThread"
    assert threads[1].startswith("tokenizer")
