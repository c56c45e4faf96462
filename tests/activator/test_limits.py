"""The bounds of the line, and what those get who are outside of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp

from tests.activator.activated import until
from tests.activator.conftest import Started

MEBIBYTE = 1 << 20


async def test_one_more_than_the_limit_gets_429(at_zero: Started) -> None:
    world = await at_zero(queueLimit=3)
    asking = [world.asking() for _ in range(3)]
    await world.held(3)
    async with world.client.get(world.url + "/v1/models") as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "5"
        error = (await response.json())["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
    await (await world.pod("llm-a")).start()
    assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 3


async def test_a_limit_of_zero_holds_nobody_but_wakes(at_zero: Started) -> None:
    world = await at_zero(queueLimit=0)
    assert (await world.get())[0] == 429
    await until(lambda: world.api.scale_writes == [1])


async def test_a_body_that_could_never_be_held_gets_413(at_zero: Started) -> None:
    world = await at_zero(queueMebibytes=1)
    async with world.client.post(world.url, data=b"x" * (MEBIBYTE + 1)) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "body_too_large"


async def test_a_body_that_is_too_large_is_not_asked_for(at_zero: Started) -> None:
    world = await at_zero(queueMebibytes=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
    writer.write(head + b"%d\r\n\r\n" % (MEBIBYTE + 1))
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(head + b"4\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 100")
    writer.close()


async def test_a_body_of_unknown_length_is_bounded_too(at_zero: Started) -> None:
    world = await at_zero(queueMebibytes=1)

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * (MEBIBYTE // 16)

    async with world.client.post(world.url, data=endless()) as response:
        assert response.status == 413
    await world.held(0)


async def test_bytes_of_all_held_bodies_are_bounded(at_zero: Started) -> None:
    world = await at_zero(queueMebibytes=1)
    part = b"x" * (MEBIBYTE // 2)
    asking = [world.asking(data=part) for _ in range(2)]
    await world.held(2)
    status, body = await world.get(data=b"y")
    assert (status, body["error"]["code"]) == (429, "queue_full")
    assert 'held_bytes{name="llm",namespace="default"} 1.048576e+06' in await world.metrics()
    model = await world.pod("llm-a")
    await model.start()
    await asyncio.gather(*asking)
    assert [len(r.body) for r in model.requests] == [len(part)] * 2
    assert 'held_bytes{name="llm",namespace="default"} 0.0' in await world.metrics()


async def test_zero_mebibytes_hold_only_requests_without_a_body(at_zero: Started) -> None:
    world = await at_zero(queueMebibytes=0)
    asking = world.asking()
    await world.held(1)
    assert (await world.get(data=b"x"))[0] == 413
    await (await world.pod("llm-a")).start()
    assert (await asking)[0] == 200


async def test_a_caller_who_hangs_up_frees_the_place_at_once(at_zero: Started) -> None:
    world = await at_zero(queueLimit=2)
    leaving, staying = world.asking(), world.asking(data=b"kept")
    await world.held(2)
    leaving.cancel()
    await world.held(1)
    again = world.asking()
    await world.held(2)
    model = await world.pod("llm-a")
    await model.start()
    assert [status for status, _ in await asyncio.gather(staying, again)] == [200, 200]
    assert len(model.requests) == 2
    assert 'outcome="client_gone"} 1.0' in await world.metrics()


async def test_a_caller_who_hangs_up_while_sending_frees_the_place(at_zero: Started) -> None:
    world = await at_zero()
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
    await world.held(1)
    writer.close()
    await world.held(0)


async def test_a_caller_who_never_finishes_sending_is_timed_out(at_zero: Started) -> None:
    world = await at_zero(timeoutSeconds=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
    assert b"503" in await reader.readline()
    writer.close()
    await world.held(0)


async def test_a_caller_who_hangs_up_stops_the_pods_work(at_zero: Started) -> None:
    world = await at_zero()
    model = await world.pod("llm-a")
    await model.start()
    asking = world.asking(headers={"X-Wait": "yes"})
    await until(lambda: model.running == 1)
    asking.cancel()
    await until(lambda: model.cancelled == 1)
    assert 'forwarding{name="llm",namespace="default"} 0.0' in await world.metrics()


async def test_nobody_waits_longer_than_the_timeout(at_zero: Started) -> None:
    world = await at_zero(timeoutSeconds=1)
    async with world.client.get(world.url) as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "5"
        error = (await response.json())["error"]
    assert (error["type"], error["code"]) == ("server_error", "activation_timeout")
    await world.held(0)


async def test_a_streaming_caller_hears_from_us_while_it_waits(at_zero: Started) -> None:
    world = await at_zero(heartbeatSeconds=1)
    model = await world.pod("llm-a")
    await model.start_sidecar()
    async with world.client.post(world.url + "/stream", json={"stream": True}) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert await response.content.readline() == (b": warming up WarmingUp: eager buckets 3/8\n")
        await model.start_engine()
        model.ready = True
        model.release.set()
        for number in range(3):
            async for line in response.content:
                if line.startswith(b"data"):
                    assert line == b"data: %d\n" % number
                    model.release.set()
                    break
    assert json.loads(model.requests[0].body) == {"stream": True}


async def test_after_heartbeats_errors_come_as_events(at_zero: Started) -> None:
    world = await at_zero(heartbeatSeconds=1, timeoutSeconds=5)
    async with world.client.post(world.url, json={"stream": True}) as response:
        assert response.status == 200
        lines = (await response.text()).splitlines()
    assert lines[0].startswith(": warming up")
    event = json.loads(next(x for x in lines if x.startswith("data: ")).removeprefix("data: "))
    assert event["error"]["code"] == "activation_timeout"
    assert 'outcome="activation_timeout"} 1.0' in await world.metrics()


async def test_after_heartbeats_a_pods_error_comes_as_an_event(at_zero: Started) -> None:
    world = await at_zero(heartbeatSeconds=1)
    async with world.client.post(world.url + "/rejected", json={"stream": True}) as response:
        await (await world.pod("llm-a")).start()
        lines = (await response.text()).splitlines()
    event = json.loads(next(x for x in lines if x.startswith("data: ")).removeprefix("data: "))
    assert event["error"]["code"] == "model_not_found"


async def test_no_heartbeat_where_none_is_wanted(at_zero: Started) -> None:
    world = await at_zero(heartbeatSeconds=0, timeoutSeconds=1)
    async with world.client.post(world.url, json={"stream": True}) as response:
        assert response.status == 503


async def test_a_caller_who_hangs_up_between_heartbeats_is_gone(at_zero: Started) -> None:
    world = await at_zero(heartbeatSeconds=1)
    response = await world.client.post(world.url, json={"stream": True})
    await response.content.readline()
    response.close()
    await world.held(0)


async def test_many_held_callers_are_served_in_their_order(at_zero: Started) -> None:
    world = await at_zero()
    asking = []
    for number in range(30):
        asking.append(world.asking(f"/{number}"))
        await world.held(number + 1)
    model = await world.pod("llm-a")
    await model.start()
    async with aiohttp.ClientSession() as late, late.get(world.url + "/late") as response:
        assert response.status == 200
    await asyncio.gather(*asking)
    paths = [r.target for r in model.requests]
    assert set(paths[:16]) == {f"/{n}" for n in range(16)}, "the first batch are the first callers"


async def test_a_body_that_is_nested_too_deeply_is_the_engines_business(at_zero: Started) -> None:
    world = await at_zero()
    body = b'{"user": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    headers = {"Content-Type": "application/json"}
    asking = asyncio.create_task(world.client.post(world.url, data=body, headers=headers))
    await until(lambda: world.api.scale_writes)
    model = await world.pod("llm-a")
    await model.start()
    assert (await asking).status == 200
    assert model.requests[0].body == body
