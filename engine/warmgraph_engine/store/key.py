"""The cache key of an engine: every fact that its graphs depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from warmgraph_api.cachekey import CacheKey
from warmgraph_engine.backends.settings import BackendSettings, kv_layout
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.models.shard import shard
from warmgraph_engine.store import layout

_SOURCES = (
    "arena.py",
    "buffers.py",
    "kv.py",
    "shapes.py",
    "models",
    "backends/base.py",
    "backends/settings.py",
)
"""What decides the content of a graph and the meaning of its static buffers, beside the sources
of the device's own backend."""


def cache_key(
    config: EngineConfig,
    checkpoint: Checkpoint,
    settings: BackendSettings,
    device_facts: Mapping[str, str],
) -> CacheKey:
    """`device_facts` come from the backend: device_name, device_architecture, driver, cuda and
    torch."""
    return CacheKey(
        format=layout.FORMAT,
        model_config_digest=hashlib.sha256(checkpoint.raw_config).hexdigest(),
        model_weights_digest=checkpoint.digest,
        model_revision=config.model_revision,
        architecture=checkpoint.config.architecture,
        device=config.device,
        engine_version=version("warmgraph"),
        engine_sources_digest=sources_digest(config.device),
        dtype=settings.dtype,
        quantization=config.quantization,
        attention_backend=config.attention_backend,
        tensor_parallel_size=config.tensor_parallel_size,
        tensor_parallel_rank=settings.rank,
        max_model_length=settings.max_model_length,
        max_batch_size=settings.max_batch_size,
        max_batch_tokens=settings.max_batch_tokens,
        kv_layout=kv_layout(shard(checkpoint.config, settings.ranks), settings),
        speculative_tokens=config.speculative_tokens,
        **device_facts,
    )


def sources_digest(device: str, package: Path = Path(__file__).parents[1]) -> str:
    """SHA-256 over the names and contents of the engine's model and kernel sources."""
    digest = hashlib.sha256()
    for name in (*_SOURCES, f"backends/{device}"):
        path = package / name
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(str(source.relative_to(package)).encode())
            digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()
