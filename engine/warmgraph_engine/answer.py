"""A graph's answer to its known-answer step, as it is kept beside the graph.

It depends on the model's weights, on the step's tokens and padding, and on the keys and values that
the step continues. The weights are not named here: other weights give another answer, which is
what a start wants to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np

from warmgraph_engine.kv import BlockTable
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Step

_SLAB_BYTES = 1 << 20
"""Hashed in a millisecond, which is worth a thread."""

_hashing = ThreadPoolExecutor(16, "hashing")
"""Starts a thread when there is first something for it to do: on a GPU, in every start."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asked: str
    """Digest of the question: question()."""
    contexts: int
    """Size of the prefill bucket that wrote the keys and values which the step continued; 0 if
    that was eager execution, or if it continued none."""
    digest: str
    """Of the question, all its logits and the tokens drawn: digest_of()."""


def _blocks(value: Any) -> list[int]:
    if isinstance(value, BlockTable):
        return value.tolist()
    raise NotImplementedError(type(value))


def question(
    shape: StepShape, step: Step, contexts: Sequence[tuple[StepShape, Step]], writer: int
) -> str:
    """SHA-256 of everything that is asked: the step, the bucket's shape that it is padded to, and
    the steps that wrote its contexts, in the shapes in which bucket `writer` ran them."""
    return hashlib.sha256(
        msgspec.json.encode((shape, step, writer, contexts), enc_hook=_blocks)
    ).hexdigest()


def digest_of(asked: str, logits: np.ndarray[Any, Any], drawn: Sequence[int]) -> str:
    """SHA-256 over a question, the tokens that the step drew, and the digests of the logits' slabs,
    which are taken side by side: of a large vocabulary they are hundreds of megabytes a start."""
    digest = hashlib.sha256(msgspec.json.encode((asked, drawn)))
    content = np.ascontiguousarray(logits).reshape(-1).view(np.uint8).data
    slabs = [content[at : at + _SLAB_BYTES] for at in range(0, len(content), _SLAB_BYTES)]
    for slab in (_hashing.map if len(slabs) > 1 else map)(_sha256, slabs):
        digest.update(slab)
    return digest.hexdigest()


def _sha256(content: memoryview) -> bytes:
    return hashlib.sha256(content).digest()
