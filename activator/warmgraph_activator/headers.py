"""Which headers pass through, and which are added. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from multidict import CIMultiDict

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""RFC 9110, 7.6.1: of one connection, not of the message. `Connection` may name further ones."""


def to_pod(headers: Mapping[str, str], *, peer: str) -> CIMultiDict[str]:
    """Headers of the forwarded request. `peer` is the caller's address."""
    passed = _end_to_end(headers)
    # Answered here already: the body is on its way.
    passed.popall("Expect", None)
    before = passed.popall("X-Forwarded-For", [])
    passed["X-Forwarded-For"] = ", ".join([*before, peer])
    passed.setdefault("X-Forwarded-Proto", "http")
    if "Host" in passed:
        passed.setdefault("X-Forwarded-Host", passed["Host"])
    return passed


def to_caller(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Headers of the answer."""
    return _end_to_end(headers)


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    copy = CIMultiDict(headers.items())
    named = {
        name.strip().lower() for value in copy.popall("Connection", []) for name in value.split(",")
    }
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in copy.items():
        if name.lower() not in HOP_BY_HOP | named:
            kept.add(name, value)
    return kept
