"""What the official OpenAI client makes of the activator."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.activator.conftest import Started, World

QUESTION: dict[str, Any] = {"model": "llm", "messages": [{"role": "user", "content": "Hello?"}]}


@pytest.fixture(autouse=True)
def certificates(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """This client insists on them, also where nothing is encrypted."""
    monkeypatch.delenv("SSL_CERT_FILE")


def client_of(world: World) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0)


async def streamed(world: World) -> str:
    """The text of a streamed answer."""
    async with client_of(world) as client:
        stream = await client.chat.completions.create(**QUESTION, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_a_question_at_zero_is_answered(at_zero: Started) -> None:
    world = await at_zero()
    async with client_of(world) as client:
        asking = asyncio.create_task(client.chat.completions.create(**QUESTION))
        await world.held(1)
        await (await world.pod("llm-a")).start()
        answer = await asking
    assert answer.choices[0].message.content == "Hello!"


async def test_heartbeats_do_not_disturb_a_stream(at_zero: Started) -> None:
    world = await at_zero(heartbeatSeconds=1)
    asking = asyncio.create_task(streamed(world))
    await world.held(1)
    await asyncio.sleep(1.5)
    await (await world.pod("llm-a")).start()
    assert await asking == "Hello!"


async def test_an_error_after_heartbeats_is_raised_with_its_message(at_zero: Started) -> None:
    world = await at_zero(heartbeatSeconds=1, timeoutSeconds=2)
    with pytest.raises(openai.APIError, match="no pod of default/llm became ready") as raised:
        await streamed(world)
    assert raised.value.code == "activation_timeout"


async def test_errors_before_heartbeats_have_the_clients_own_types(at_zero: Started) -> None:
    world = await at_zero(timeoutSeconds=1)
    with pytest.raises(openai.InternalServerError) as timed_out:
        await streamed(world)
    assert (timed_out.value.status_code, timed_out.value.code) == (503, "activation_timeout")


async def test_a_full_line_is_a_rate_limit(at_zero: Started) -> None:
    world = await at_zero(queueLimit=0)
    with pytest.raises(openai.RateLimitError) as full:
        await streamed(world)
    assert full.value.code == "queue_full"
