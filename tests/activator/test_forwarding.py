"""What passes through, and how."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.activator.activated import until
from tests.activator.conftest import World
from tests.activator.modelpod import ModelPod


@pytest.fixture
async def model(world: World) -> ModelPod:
    await world.deployment(replicas=1)
    made = await world.pod("llm-a", ready=True)
    await made.start()
    await world.start()
    return made


async def test_a_stream_comes_piece_by_piece(world: World, model: ModelPod) -> None:
    async with world.client.get(world.url + "/stream") as response:
        assert response.content_type == "text/event-stream"
        for number in range(3):
            model.release.set()
            async with asyncio.timeout(10):
                assert await response.content.readuntil(b"\n\n") == b"data: %d\n\n" % number


async def test_a_body_is_passed_on_while_it_comes(world: World, model: ModelPod) -> None:
    sent = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"first "
        await until(lambda: model.running == 1)
        sent.set()
        yield b"second"

    async with world.client.post(world.url, data=body()) as response:
        assert response.status == 200
    assert sent.is_set(), "the pod had the request before all of it was sent"
    assert model.requests[0].body == b"first second"


@pytest.mark.parametrize(
    ("target", "arrives"),
    [
        ("/v1/a%2Fb/%E2%82%AC?x=1&y=%26&x=2", "/v1/a%2Fb/%E2%82%AC?x=1&y=%26&x=2"),
        ("//x//y", "//x//y"),
        ("/a%zz?q=%", "/a%zz?q=%"),
        ("http://llm.example/z?q=1", "/z?q=1"),
        ("/?q#part", "/?q"),
    ],
)
async def test_the_target_arrives_as_it_was(
    world: World, model: ModelPod, target: str, arrives: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    assert model.requests[0].target == arrives


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "CONNECT"])
@pytest.mark.parametrize("target", ["*", "*@{other}/x", "@{other}/x", "{other}", "x:y@{other}"])
async def test_no_target_leads_to_another_host_than_the_pods(
    world: World, model: ModelPod, method: str, target: str
) -> None:
    """`http://POD:8000*@other/` would be at another host."""
    reached = asyncio.Event()

    async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        line = f"{method} {target.format(other=f'{host}:{port}')} HTTP/1.1"
        writer.write(f"{line}\r\nHost: x\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] in {b"200", b"400", b"404"}
        writer.close()
        assert not reached.is_set()


async def test_method_and_body_arrive_as_they_were(world: World, model: ModelPod) -> None:
    async with world.client.put(world.url, data=b"\0\xff") as response:
        assert response.status == 200
    assert (model.requests[0].method, model.requests[0].body) == ("PUT", b"\0\xff")


async def test_headers_of_the_hop_stay_and_the_rest_goes_on(world: World, model: ModelPod) -> None:
    sent = {
        "Host": "llm.example",
        "Authorization": "Bearer secret",
        "Connection": "keep-alive, X-Mine",
        "X-Mine": "of this hop",
        "Keep-Alive": "timeout=5",
        "X-Forwarded-For": "10.0.0.9",
        "User-Agent": "curl/8",
    }
    await world.get(headers=sent)
    got = model.requests[0].headers
    assert got["Host"] == "llm.example"
    assert got["Authorization"] == "Bearer secret"
    assert got["User-Agent"] == "curl/8"
    assert got["X-Forwarded-For"] == "10.0.0.9, 127.0.0.1"
    assert got["X-Forwarded-Proto"] == "http"
    assert got["X-Forwarded-Host"] == "llm.example"
    assert not {"X-Mine", "Keep-Alive"} & got.keys()


async def test_a_pods_error_is_passed_on_as_it_is(world: World, model: ModelPod) -> None:
    async with world.client.get(world.url + "/rejected") as response:
        assert response.status == 404
        assert response.headers["X-Own"] == "yes"
        assert "X-Hop" not in response.headers
        assert (await response.json())["error"]["code"] == "model_not_found"


async def test_compressed_bodies_pass_as_they_are(world: World, model: ModelPod) -> None:
    body = gzip.compress(b"{}" * 1000)
    async with world.client.post(
        world.url, data=body, headers={"Content-Encoding": "gzip"}
    ) as response:
        assert response.status == 200
    assert model.requests[0].body == body
    assert model.requests[0].headers["Content-Encoding"] == "gzip"


async def test_answers_close_the_connection(world: World, model: ModelPod) -> None:
    """Or a caller with a connection pool would stay on the activator for good."""
    async with aiohttp.ClientSession() as keeping, keeping.get(world.url) as response:
        assert response.headers["Connection"] == "close"


async def test_an_answer_cut_short_does_not_look_complete(world: World, model: ModelPod) -> None:
    async with world.client.get(world.url + "/broken") as response:
        assert await response.content.readline() == b"data: 0\n"
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientConnectionError)):
            await response.read()


async def test_a_request_that_was_sent_is_never_sent_again(world: World, model: ModelPod) -> None:
    status, body = await world.get("/reset")
    assert (status, body["error"]["code"]) == (502, "pod_connection_lost")
    assert len(model.requests) == 1


async def test_head_has_no_body(world: World, model: ModelPod) -> None:
    async with world.client.head(world.url + "/v1/models") as response:
        assert response.status == 200
        assert await response.read() == b""


async def test_a_large_answer_waits_for_a_slow_caller(world: World, model: ModelPod) -> None:
    """Backpressure: the pod cannot run ahead of a caller that does not read."""
    _, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1024)
    writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: model.sent > 0)
    before = -1
    while before != model.sent:
        before = model.sent
        await asyncio.sleep(0.3)
    assert model.sent < 64 << 20
    writer.close()
    await until(lambda: model.running == 0)


async def test_a_caller_that_waits_for_leave_to_send_gets_it(world: World, model: ModelPod) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    async with asyncio.timeout(10):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    assert model.requests[0].body == b"body"
    assert "Expect" not in model.requests[0].headers
