"""What rank 0 says to another rank, and what that one answers: msgpack, each with its length.

Commands that are answered carry a number; those without are only obeyed, and a rank that cannot
says so (Answer 0) and ends.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from warmgraph_api.report import StepKind
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import BucketId, StepShape
from warmgraph_engine.step import Step

EAGER = 0
"""In place of a graph's number."""


class Hello(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """First of all: open the backend. Answered when graphs can be recorded and loaded, while the
    weights are still on their way."""

    config: EngineConfig
    folder: Path
    """Private, for what the ranks of one engine share."""
    log_level: int


class Run(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Run a step. Not answered: ranks note how far they are where rank 0 sees it (progress.py)."""

    iteration: int
    """Counts the steps of the engine, from 1."""
    step: Step
    shape: StepShape
    bucket: int
    """Size of the graph's bucket; 0 without one."""
    graph: int
    """Number that rank 0 gave it, or EAGER."""
    forget: list[int] = []
    """Graphs that are not needed any more."""


class Record(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Capture a step for a bucket; the image is kept."""

    size: int
    step: Step
    shape: StepShape


class Load(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Make a graph of the bucket's image: the one captured last, or else the stored one."""

    kind: StepKind
    size: int
    graph: int


class FinishLoading(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Answer when the weights are where they belong: no step runs before."""


class ForgetStored(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """As Backend.forget_stored. Not answered."""


class PoisonKv(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """As Backend.poison_kv. Not answered."""

    blocks: int


class PoisonLogits(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """As Backend.poison_logits. Not answered."""

    rows: int


class Drawn(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Answer with the tokens that the last step drew."""


class Prepare(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """As Recorder.prepare, beside the steps. Not answered."""


class LookUp(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Answer with the buckets that are stored for this rank."""


class Publish(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Store the images of these buckets."""

    buckets: list[BucketId]


Command = (
    Hello
    | Run
    | Record
    | Load
    | FinishLoading
    | ForgetStored
    | PoisonKv
    | PoisonLogits
    | Prepare
    | Drawn
    | LookUp
    | Publish
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    command: Command
    number: int = 0
    """To be answered with; 0 if no answer is wanted."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    problem: str = ""
    """Why it could not; empty if it could."""
    buckets: list[BucketId] = []
    tokens: list[int] | None = None


_Message = TypeVar("_Message", Request, Answer)


def _encode_hook(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BlockTable):
        return value.tobytes()
    raise NotImplementedError(type(value))


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    if kind is BlockTable:
        return BlockTable(value)
    raise NotImplementedError(kind)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_hook)


def encode(message: Request | Answer) -> bytes:
    """To be sent as it is."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "little") + body


def received(connection: socket.socket, kind: type[_Message]) -> Iterator[_Message]:
    """Messages until the other end closes the connection, or is gone."""
    decoder = msgspec.msgpack.Decoder(kind, dec_hook=_decode_hook)
    with connection.makefile("rb") as stream:
        while True:
            try:
                head = stream.read(4)
                body = stream.read(int.from_bytes(head, "little")) if len(head) == 4 else b""
            except OSError:
                return
            if not body:
                return
            yield decoder.decode(body)
