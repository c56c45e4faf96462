"""The backend of a device, imported only when it is the one asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from warmgraph_api.resource import Device, DType
from warmgraph_engine.backends.base import Backend
from warmgraph_engine.backends.peers import Peers
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.config import EngineConfig


def backend_settings(
    config: EngineConfig, checkpoint: Checkpoint, *, rank: int = 0
) -> BackendSettings:
    """The settings of the resource for one of its ranks, with `auto` decided."""
    dtype: str = config.dtype
    if config.dtype is DType.AUTO:
        # Few CPUs compute in 16 bits; GPUs do it best.
        dtype = DType.FLOAT32 if config.device is Device.CPU else checkpoint.config.dtype
    return BackendSettings(
        dtype=str(dtype),
        block_size=config.kv_block_size,
        kv_cache_bytes=config.kv_cache_bytes,
        max_model_length=config.max_model_length,
        max_batch_size=config.max_batch_size,
        max_batch_tokens=config.max_batch_tokens,
        max_tokens_per_sequence=1 + config.speculative_tokens,
        graph_mode=config.graph_mode,
        quantization=config.quantization,
        rank=rank,
        ranks=config.tensor_parallel_size,
    )


def open_backend(
    device: Device,
    checkpoint: Checkpoint,
    settings: BackendSettings,
    *,
    progress: Callable[[], None],
    peers: Peers | None = None,
) -> tuple[Backend, Mapping[str, str]]:
    """The backend with the model loaded, and the device's facts of the cache key. Of several ranks
    each needs its `peers`, and all open theirs at the same time.

    Raises ModelError, or RuntimeError if the ranks do not find each other.
    """
    if device is Device.CPU:
        # Read when torch is imported. Threads that sleep at OpenMP's barriers, rather than spin,
        # leave the cores to whom they wait for: on 2 busy cores a decode step took 0.2 s, not 2 s.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        from warmgraph_engine.backends.cpu.backend import (  # noqa: PLC0415
            CpuBackend,
            device_facts,
        )
        from warmgraph_engine.backends.cpu.threads import use_available_cpus  # noqa: PLC0415

        use_available_cpus(shared_by=settings.ranks)
        if peers is not None:
            from warmgraph_engine.backends.cpu.ranks import join  # noqa: PLC0415

            join(
                peers.folder,
                rank=settings.rank,
                ranks=settings.ranks,
                timeout_seconds=peers.timeout_seconds,
            )
        return CpuBackend(checkpoint, settings, progress=progress), device_facts()
    from warmgraph_engine.backends.cuda.backend import CudaBackend  # noqa: PLC0415
    from warmgraph_engine.backends.cuda.facts import (  # noqa: PLC0415
        device_facts as cuda_facts,
    )

    backend = CudaBackend(checkpoint, settings, progress=progress, peers=peers)
    return backend, cuda_facts(settings.rank)
