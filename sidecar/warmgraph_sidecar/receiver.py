"""The report socket: takes the engine's reports, sends it commands.

The newest connection that sent a valid report is the engine's; an older one is closed, since it
belongs to a process that was replaced. A bad line costs its connection and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path

import msgspec

from warmgraph_api import wire
from warmgraph_sidecar.pod import Pod

log = logging.getLogger(__name__)

SOCKET_MODE = 0o660
"""Engine and sidecar may run with different users; they share the group of the emptyDir."""


class Receiver:
    """Listens on the report socket from `start` to `close`."""

    def __init__(self, pod: Pod, path: Path) -> None:
        self._pod = pod
        self._path = path
        self._server: asyncio.Server | None = None
        self._engine: asyncio.StreamWriter | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.dropped: Counter[str] = Counter()
        """Connections dropped for a bad line, by cause."""

    async def start(self) -> None:
        """Listen. A socket that an earlier sidecar left behind is replaced.

        Raises OSError where the folder is missing, not writable, or the path is another file.
        """
        self._server = await asyncio.start_unix_server(
            self._serve, self._path, limit=wire.MAX_LINE_BYTES
        )
        self._path.chmod(SOCKET_MODE)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.close()

    def send_drain(self) -> None:
        """Ask the engine to drain, if there is one; one that connects later is asked then."""
        if self._engine is not None:
            self._engine.write(wire.encode_line(wire.Command(name=wire.CommandName.DRAIN)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._read(reader, writer)
        except (asyncio.LimitOverrunError, ValueError) as error:
            # Decoding errors of msgspec are ValueErrors, and so is readline's overlong line.
            malformed = isinstance(error, msgspec.MsgspecError)
            self.dropped["malformed" if malformed else "oversized"] += 1
            log.warning("dropped a report connection: %s", error)
        except OSError as error:
            log.info("report connection ended: %s", error)
        finally:
            self._open.discard(writer)
            if self._engine is writer:
                self._engine = None
                self._pod.on_disconnect()
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A last line without its end belongs to an engine that was killed while it wrote.
        while (line := await reader.readline()).endswith(b"\n"):
            report = wire.decode_report(line)
            replaced = self._engine if self._engine is not writer else None
            is_new = self._engine is not writer
            self._engine = writer
            self._pod.on_report(report)
            if replaced is not None:
                replaced.close()
            if is_new and self._pod.draining:
                self.send_drain()
