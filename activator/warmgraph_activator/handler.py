"""One request's way: to a pod at once, or into the line and then to a pod, or refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import aiohttp
import msgspec
from aiohttp import web

from warmgraph_activator import body as bodies
from warmgraph_activator.early import EarlyStream
from warmgraph_activator.forward import NotSentError, forward
from warmgraph_activator.hold import Hold
from warmgraph_activator.line import Place
from warmgraph_activator.metrics import Metrics
from warmgraph_activator.pods import Lease
from warmgraph_activator.refusal import Outcome, Refusal

PROBE_PATH = "/.warmgraph/ready"
"""Asked by the operator before it scales to zero."""

Ended = tuple[Outcome, web.StreamResponse]


@dataclass(frozen=True)
class _Call:
    """A request on its way. `body` is None while it still comes in, piece by piece."""

    request: web.BaseRequest
    body: bytes | None = None
    early: EarlyStream | None = None
    arrived: float = 0.0
    deadline: float = 0.0


class Handler:
    """Serves the port of one deployment."""

    def __init__(
        self, hold: Hold, *, client: aiohttp.ClientSession, engine_port: int, metrics: Metrics
    ) -> None:
        self._hold = hold
        self._client = client
        self._engine_port = engine_port
        self._metrics = metrics

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == PROBE_PATH and request.method == "GET":
            body = msgspec.json.encode(self._hold.key._asdict())
            return _closing(web.Response(body=body, content_type="application/json"))
        outcome = Outcome.CLIENT_GONE
        try:
            outcome, response = await self._serve(request)
        except Refusal as refusal:
            outcome = refusal.outcome
            response = _closing(
                web.Response(body=refusal.body, status=refusal.status, headers=refusal.headers)
            )
        finally:
            self._metrics.requests.labels(*self._hold.key, outcome).inc()
        return response

    async def _serve(self, request: web.BaseRequest) -> Ended:
        lease = self._hold.direct()
        if lease is not None:
            with lease:
                try:
                    await bodies.invite(request)
                    return await self._forward(_Call(request), lease)
                except NotSentError:
                    lease.on_refused()
        return await self._hold_back(request)

    async def _hold_back(self, request: web.BaseRequest) -> Ended:
        activation = self._hold.line.limits
        arrived = asyncio.get_running_loop().time()
        deadline = arrived + activation.timeout_seconds
        with self._hold.enter() as place:
            try:
                async with asyncio.timeout_at(deadline):
                    body = await bodies.read(request, place)
            except TimeoutError:
                raise self._hold.timed_out() from None
            early = None
            if activation.heartbeat_seconds and bodies.asks_for_stream(request, body):
                early = EarlyStream(request, activation.heartbeat_seconds)
            try:
                self._hold.join(place)
                call = _Call(request, body, early, arrived, deadline)
                return await self._forward_in_turn(call, place)
            except Refusal as refusal:
                if early is None or early.response is None:
                    raise
                return refusal.outcome, await early.end(refusal.event)

    async def _forward_in_turn(self, call: _Call, place: Place) -> Ended:
        loop = asyncio.get_running_loop()
        while True:
            with await self._turn(call, place) as lease:
                waited = loop.time() - call.arrived
                try:
                    ended = await self._forward(call, lease)
                except NotSentError:
                    lease.on_refused()
                    self._hold.rejoin(place)
                else:
                    self._metrics.waited.labels(*self._hold.key).observe(waited)
                    return ended

    async def _turn(self, call: _Call, place: Place) -> Lease:
        """The pod this request got. Raises Refusal at the deadline or when none will come."""
        loop = asyncio.get_running_loop()
        while True:
            left = call.deadline - loop.time()
            early = call.early
            lease = await place.wait(min(left, early.next_in) if early else left)
            if lease is not None:
                return lease
            if loop.time() >= call.deadline:
                raise self._hold.timed_out()
            if early is not None:
                await early.beat(self._hold.pods.message)

    async def _forward(self, call: _Call, lease: Lease) -> Ended:
        response = await forward(
            call.request,
            body=call.body,
            early=call.early,
            client=self._client,
            host=lease.ip,
            port=self._engine_port,
        )
        return Outcome.FORWARDED, response


def _closing(response: web.Response) -> web.Response:
    """The caller's next request shall find its own way: to a pod if there is one by then."""
    response.force_close()
    return response
