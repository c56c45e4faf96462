"""Keys and images for tests of the store, which does not look into either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from warmgraph_api.cachekey import CacheKey
from warmgraph_api.report import StepKind
from warmgraph_api.resource import CacheMode
from warmgraph_engine.answer import Answer
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.store.layout import sha256
from warmgraph_engine.store.policy import Retention
from warmgraph_engine.store.store import Store

KEY = CacheKey(
    format=1,
    model_config_digest="c" * 64,
    model_weights_digest="a" * 64,
    model_revision="",
    architecture="LlamaForCausalLM",
    device="cpu",
    device_name="AVX2",
    device_architecture="x86_64",
    driver="none",
    cuda="none",
    torch="2.11.0",
    engine_version="0.1.0",
    engine_sources_digest="e" * 64,
    dtype="float32",
    quantization="none",
    attention_backend="auto",
    tensor_parallel_size=1,
    tensor_parallel_rank=0,
    max_model_length=2048,
    max_batch_size=8,
    max_batch_tokens=256,
    kv_layout="16 x 100",
    speculative_tokens=0,
)


def key(**changes: Any) -> CacheKey:
    return msgspec.structs.replace(KEY, **changes)


def image(size: int, content: bytes = b"graph") -> GraphImage:
    binary = b"kernel of " + content
    return GraphImage(
        kind=StepKind.DECODE,
        size=size,
        document=content + b" %d" % size,
        binaries={sha256(binary): binary},
        answer=Answer(asked=sha256(b"question"), contexts=64, digest=sha256(content)),
    )


def plain(images: Any) -> set[tuple[str, int, bytes, tuple[str, ...], Answer | None]]:
    """What a lookup's images are, in a form that can be compared."""
    return {
        (found.kind, found.size, found.document, tuple(found.binaries), found.answer)
        for found in images
    }


def store(root: Path | None, of: CacheKey = KEY, **settings: Any) -> Store:
    defaults = {"mode": CacheMode.READ_WRITE, "retention": Retention(revisions=10)}
    return Store(root, of, **{**defaults, **settings})
