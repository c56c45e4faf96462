"""Where the application keeps what its handlers need."""

from __future__ import annotations

from aiohttp import web

from warmgraph_engine.server.service import Service

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
