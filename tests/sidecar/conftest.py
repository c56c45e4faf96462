"""The real sidecar as a process of its own, on a free port and a socket in a short path."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.sidecar.engine import Engine

WAIT_SECONDS = 20
"""For things that take milliseconds; two busy cores make them seconds."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Sidecar:
    def __init__(self, process: asyncio.subprocess.Process, port: int, path: Path) -> None:
        self.process = process
        self.socket = path
        self.url = f"http://127.0.0.1:{port}"

    async def get(self, path: str) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.url + path) as response,
        ):
            json = response.content_type == "application/json"
            return response.status, await (response.json() if json else response.text())

    async def until(
        self,
        path: str,
        status: int,
        reason: str | None = None,
        *,
        patience: float = WAIT_SECONDS,
    ) -> Any:
        """The body of the first answer with this status and reason."""
        async with asyncio.timeout(patience):
            while True:
                got, body = await self.get(path)
                if got == status and reason in (None, body["reason"]):
                    return body
                await asyncio.sleep(0.02)

    async def engine(self, boot_id: str = "first") -> Engine:
        return await Engine(self.socket, boot_id).connect()


Start = Callable[..., Awaitable[Sidecar]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the path of a Unix socket has at most 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="wg") as name:
        yield Path(name)


@pytest.fixture
async def start(folder: Path) -> AsyncIterator[Start]:
    """Starts `warmgraph-sidecar` with further flags, and stops it after the test."""
    started: list[asyncio.subprocess.Process] = []

    async def start(*flags: str) -> Sidecar:
        port = free_port()
        path = folder / "report.sock"
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "warmgraph_sidecar"],
            *["--host", "127.0.0.1", "--port", str(port), "--report-socket", str(path)],
            *flags,
            env={"PATH": os.environ["PATH"]},
        )
        started.append(process)
        sidecar = Sidecar(process, port, path)
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                with suppress(aiohttp.ClientConnectionError):
                    if (await sidecar.get("/healthz"))[0] == 200:
                        return sidecar
                await asyncio.sleep(0.02)

    yield start
    for process in started:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
