"""The engine's end of the report socket, as a test drives it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.sidecar.reports import report
from warmgraph_api import wire


class Engine:
    """One engine process: a boot id, a connection, and a sequence that grows."""

    def __init__(self, socket: Path, boot_id: str = "first") -> None:
        self._socket = socket
        self._boot_id = boot_id
        self._sequence = 0
        self._heart: asyncio.Task[None] | None = None
        self.last: dict[str, Any] = {}

    async def connect(self) -> Engine:
        self._reader, self._writer = await asyncio.open_unix_connection(self._socket)
        return self

    async def report(self, **changes: Any) -> None:
        self.last = changes
        self._sequence += 1
        values = {"boot_id": self._boot_id, "sequence": self._sequence} | changes
        await self.send(wire.encode_line(report(**values)))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def beat(self) -> None:
        """Repeat the last report twenty times a second, until `close`."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(0.05)
                await self.report(**self.last)

        self._heart = asyncio.create_task(beat())

    async def command(self) -> wire.Command:
        return wire.decode_command(await self._reader.readline())

    async def closed_by_sidecar(self) -> bool:
        return await self._reader.read() == b""

    async def close(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
        self._writer.close()
