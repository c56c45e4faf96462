"""A model pod on an address of its own on loopback: a sidecar and an engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from aiohttp import web

CHAT = {"id": "chat-1", "created": 1, "model": "llm"}


class Received(NamedTuple):
    """A request as the engine got it."""

    method: str
    target: str
    """As it stands in the request line."""
    headers: dict[str, str]
    body: bytes


class ModelPod:
    """Every pod has the same two ports, as in a cluster, and another address of 127.0.0.0/8."""

    def __init__(self, name: str, ip: str, *, engine_port: int, sidecar_port: int) -> None:
        self.name = name
        self.ip = ip
        self._engine_port = engine_port
        self._sidecar_port = sidecar_port
        self._runners: list[web.AppRunner] = []
        self.ready = False
        self.engine_runs = False
        self.asked = 0
        self.requests: list[Received] = []
        self.running = 0
        self.most = 0
        """Requests in progress at the same time, at most."""
        self.release = asyncio.Event()
        """Answers wait for it where a request has the header X-Wait."""
        self.cancelled = 0
        self.sent = 0
        """Bytes that `/large` could write."""

    async def start_sidecar(self) -> None:
        app = web.Application()
        app.router.add_get("/readyz", self._readyz)
        await self._listen(app, self._sidecar_port)

    async def start_engine(self) -> None:
        self.engine_runs = True
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._serve)
        await self._listen(app, self._engine_port)

    async def start(self, *, ready: bool = True) -> None:
        await self.start_sidecar()
        await self.start_engine()
        self.ready = ready

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(self, app: web.Application, port: int) -> None:
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=0.1,
            handler_cancellation=True,
            auto_decompress=False,
        )
        await runner.setup()
        await web.TCPSite(runner, self.ip, port).start()
        self._runners.append(runner)

    async def _readyz(self, _: web.Request) -> web.Response:
        self.asked += 1
        body = {"ready": self.ready, "reason": "WarmingUp", "message": "eager buckets 3/8"}
        return web.json_response(body, status=200 if self.ready else 503)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._answer(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        received = Received(request.method, request.raw_path, dict(request.headers), body)
        self.requests.append(received)
        if "X-Wait" in request.headers:
            await self.release.wait()
        special = getattr(self, "_" + request.path.strip("/").replace("/", "_"), None)
        if special is not None:
            answer: web.StreamResponse = await special(request)
            return answer
        return web.json_response({"pod": self.name, "path": request.path_qs})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Three events, each after the test released it."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(3):
            await self.release.wait()
            self.release.clear()
            await response.write(b"data: %d\n\n" % number)
        return response

    async def _v1_chat_completions(self, request: web.Request) -> web.StreamResponse:
        """A streamed answer in two pieces, or one that isn't streamed."""
        if not (await request.json()).get("stream"):
            message = {"role": "assistant", "content": "Hello!"}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            return web.json_response({"object": "chat.completion", "choices": [choice]} | CHAT)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for text in ("Hel", "lo!"):
            choice = {"index": 0, "finish_reason": None, "delta": {"content": text}}
            chunk = {"object": "chat.completion.chunk", "choices": [choice]} | CHAT
            await response.write(b"data: %s\n\n" % json.dumps(chunk).encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _broken(self, request: web.Request) -> web.StreamResponse:
        """A stream that is cut in the middle."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 0\n\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async def _rejected(self, request: web.Request) -> web.StreamResponse:
        error: dict[str, Any] = {"error": {"message": "no such model", "code": "model_not_found"}}
        return web.json_response(
            error, status=404, headers={"X-Own": "yes", "Connection": "X-Hop", "X-Hop": "no"}
        )

    async def _large(self, request: web.Request) -> web.StreamResponse:
        """64 MiB, as fast as they are taken."""
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1024):
            await response.write(b"x" * 65536)
            self.sent += 65536
        return response

    async def _reset(self, request: web.Request) -> web.StreamResponse:
        """The connection breaks before any answer."""
        assert request.transport is not None
        request.transport.abort()
        return web.Response()
