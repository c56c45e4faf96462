"""Streams of tokens from an engine, timed as their reader gets them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

PORT = 8123
BASE_URL = f"http://127.0.0.1:{PORT}"
URL = f"{BASE_URL}/v1/completions"
SILENCE_SECONDS = 60
"""Longest time between two bytes of an answer."""
REQUEST = {"model": "m", "prompt": "hello", "temperature": 0, "ignore_eos": True}


@dataclass(slots=True)
class Streamed:
    """What one stream's reader saw. Times are those of time.perf_counter()."""

    sent: float
    arrived: list[float] = field(default_factory=list)
    """Of each event with text. A server that falls behind puts several tokens into one."""

    @property
    def first_token(self) -> float:
        """Seconds from the request to its first text."""
        return self.arrived[0] - self.sent

    @property
    def gaps(self) -> list[float]:
        """Seconds between events."""
        return [b - a for a, b in zip(self.arrived, self.arrived[1:], strict=False)]


async def stream(
    session: aiohttp.ClientSession, tokens: int, *, prompt: str | Sequence[int] = "hello"
) -> Streamed:
    """Read one stream of so many tokens. Raises RuntimeError if the engine answers otherwise."""
    body = {**REQUEST, "prompt": prompt, "max_tokens": tokens, "stream": True}
    body["stream_options"] = {"include_usage": True}
    usage: dict[str, Any] | None = None
    found = Streamed(time.perf_counter())
    async with session.post(URL, json=body) as answer:
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} for {tokens} tokens: {await answer.text()}")
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            # Read only what is no text: to decode every event would take longer than to make it.
            if line.startswith(b'data: {"error"') or b'"choices":[]' in line:
                last = json.loads(line.removeprefix(b"data: "))
                usage = last.get("usage")
                if usage is None:
                    raise RuntimeError(f"the stream ended with an error: {last}")
            else:
                found.arrived.append(time.perf_counter())
    generated = usage["completion_tokens"] if usage else 0
    if generated != tokens:
        raise RuntimeError(f"the stream ended after {generated} of {tokens} tokens")
    return found


def session() -> aiohttp.ClientSession:
    """For any number of streams at once, of any length."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_read=SILENCE_SECONDS),
    )


async def load(streams: int, tokens: int) -> tuple[list[float], float]:
    """(every gap between two events in seconds, tokens per second) of equal streams at once."""
    async with session() as client:
        began = time.perf_counter()
        found = await asyncio.gather(*(stream(client, tokens) for _ in range(streams)))
        seconds = time.perf_counter() - began
    return [gap for one in found for gap in one.gaps], streams * tokens / seconds
