"""Where the application and its requests keep what handlers and middlewares share."""

from __future__ import annotations

from aiohttp import web

from warmgraph_engine.metrics import Outcome
from warmgraph_engine.server.service import Service

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)

OUTCOME: web.RequestKey[Outcome] = web.RequestKey("outcome", Outcome)
"""Set by a handler whose response's status does not tell how it ended: a broken stream."""
