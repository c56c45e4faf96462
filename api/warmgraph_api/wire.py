"""How engine and sidecar talk: lines of JSON over the Unix socket `ports.REPORT_SOCKET`.

The sidecar listens, since it starts first (a native sidecar). The engine connects, sends one
WarmupReport a line, on every change and at least every HEARTBEAT_SECONDS, and reconnects when
the sidecar was restarted. The sidecar answers with Command lines. Either side drops a
connection whose line is longer than MAX_LINE_BYTES or is not valid.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from warmgraph_api.report import Report, WarmupReport

HEARTBEAT_SECONDS = 1.0
"""Long against the cost of a report (under a millisecond), short against a probe's period."""

MAX_LINE_BYTES = 1 << 20
"""About 6,000 buckets; a report of 64 buckets is 10 KiB."""


class CommandName(StrEnum):
    DRAIN = "drain"
    """Stop: finish what runs, say so in the report (Stage.DRAINING), then wait for SIGTERM.
    New requests are still served, since endpoints take a moment to follow."""


class Command(Report, frozen=True, kw_only=True):
    name: CommandName


T = TypeVar("T")

_report_decoder = msgspec.json.Decoder(WarmupReport)
_command_decoder = msgspec.json.Decoder(Command)
_encoder = msgspec.json.Encoder()


def encode_line(message: WarmupReport | Command) -> bytes:
    """One message as a line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode_report(line: bytes) -> WarmupReport:
    """Raises msgspec.ValidationError or msgspec.DecodeError on a bad line."""
    return _decoded(_report_decoder, line)


def decode_command(line: bytes) -> Command:
    """Raises msgspec.ValidationError or msgspec.DecodeError on a bad line."""
    return _decoded(_command_decoder, line)


def _decoded(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    try:
        return decoder.decode(line)
    except RecursionError as error:
        # A line of nothing but brackets is as bad as any other, and must not end a process.
        raise msgspec.DecodeError("JSON is nested too deeply") from error
