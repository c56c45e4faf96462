"""A server over the toy model, as the tests of this folder see it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from aiohttp import ClientSession, web
from openai import AsyncOpenAI

from tests.engine.harness import PATIENCE_SECONDS, Engine
from tests.engine.texts import VOCABULARY
from tests.engine.toy import limits, toy_logits_of
from warmgraph_api.report import Stage
from warmgraph_engine.server.app import create_app, make_runner
from warmgraph_engine.server.service import ServerSettings, Service
from warmgraph_engine.tokenizer.text import TextModel

MODEL = "toy"


@dataclass
class Served:
    engine: Engine
    text: TextModel
    stage: tuple[Stage, str] = (Stage.CAPTURING, "3 of 5 buckets")
    service: Service = field(init=False)
    runner: web.AppRunner = field(init=False)
    client: ClientSession = field(init=False)
    url: str = field(init=False)

    @cached_property
    def openai(self) -> AsyncOpenAI:
        """The official client. Made when first used: it loads the system's certificates."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        response = await self.client.post(path, json=body)
        return response.status, await response.json()

    async def complete(self, **fields: Any) -> Any:
        """A completion's only choice; the request must succeed."""
        body = {"model": MODEL, "prompt": "hello", "temperature": 0} | fields
        status, answer = await self.post("/v1/completions", body)
        assert status == 200, answer
        return answer["choices"][0]

    async def events(self, path: str, **fields: Any) -> list[Any]:
        """The events of a stream, [DONE] included."""
        response = await self.client.post(path, json={"model": MODEL, "stream": True} | fields)
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        lines = (await response.text()).split("\n\n")
        assert lines.pop() == ""
        contents = [line.removeprefix("data: ") for line in lines]
        return [c if c == "[DONE]" else json.loads(c) for c in contents]

    def value(self, name: str, **labels: str) -> float:
        value = self.engine.registry.get_sample_value(name, labels)
        assert value is not None, name
        return value

    async def until(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            await asyncio.sleep(0.005)

    @property
    def blocks_used(self) -> int:
        return self.engine.loop._scheduler.pool.used


async def start_server(
    text: TextModel,
    *,
    attach: bool = True,
    settings: ServerSettings | None = None,
    max_waiting: int = 1000,
    send_buffer_bytes: int | None = None,
    habit: float = 0.0,
    speculative_tokens: int = 0,
    **changes: int,
) -> Served:
    """Serve the toy model on loopback; `changes` are to its limits."""
    engine = Engine(
        limits(vocabulary=VOCABULARY, **changes),
        max_waiting=max_waiting,
        habit=habit,
        speculative_tokens=speculative_tokens,
    )
    served = Served(engine=engine, text=text)
    served.service = Service(
        model_name=MODEL,
        stage=lambda: served.stage,
        metrics=engine.metrics,
        settings=settings,
    )
    served.runner = make_runner(create_app(served.service))
    await served.runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    if send_buffer_bytes is not None:  # connections inherit it
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    await web.SockSite(served.runner, listening).start()
    host, port = served.runner.addresses[0]
    served.url = f"http://{host}:{port}"
    served.client = ClientSession(served.url)
    if attach:
        served.service.attach(engine.loop, text)
        served.stage = (Stage.SERVING, "")
    return served


async def stop_server(served: Served) -> None:
    served.engine.executor.gate.set()
    if "openai" in vars(served):
        await served.openai.close()
    await served.client.close()
    await served.runner.cleanup()
    await served.service.close()


def greedy(prompt: list[int], count: int) -> list[int]:
    """What the toy model says after this prompt."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(toy_logits_of(tokens, VOCABULARY).argmax()))
    return tokens[len(prompt) :]
