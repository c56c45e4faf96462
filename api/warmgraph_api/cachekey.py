"""The graph cache key: everything that a stored graph depends on, field by field.

Two engines with equal keys may exchange graphs; with any field unequal they must not. Nothing
of the pod, the node, the device's serial number, the port or the time is in it.
"""

from __future__ import annotations

import hashlib

import msgspec


class CacheKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All fields are plain text or whole numbers, so that `key.json` is readable and exact."""

    format: int
    """Of the stored entry; grows when its layout changes."""
    model_config_digest: str
    """Of config.json."""
    model_weights_digest: str
    """Of the weights: names, shapes, types and sampled content (the engine's
    checkpoint/digest.py says how)."""
    model_revision: str
    """As declared in the resource; empty when none is."""
    architecture: str
    """Model class, such as LlamaForCausalLM."""
    device: str
    """cpu or cuda."""
    device_name: str
    """GPU model, or the CPU's instruction set as torch reports it."""
    device_architecture: str
    """Compute capability such as sm_90, or the machine type such as x86_64."""
    driver: str
    cuda: str
    torch: str
    engine_version: str
    engine_sources_digest: str
    """Of the engine's model and kernel sources."""
    dtype: str
    quantization: str
    attention_backend: str
    tensor_parallel_size: int
    tensor_parallel_rank: int
    max_model_length: int
    max_batch_size: int
    max_batch_tokens: int
    kv_layout: str
    """Block size, blocks and order of the dimensions."""
    speculative_tokens: int
    """Draft tokens per step; 0 without speculative decoding."""

    def digest(self) -> str:
        """SHA-256 in hex of the canonical JSON form; names the entry's folder."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    def differences(self, other: CacheKey) -> dict[str, tuple[str | int, str | int]]:
        """Fields with unequal values, as (ours, other's), in the order of declaration."""
        fields = self.__struct_fields__
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in fields)
        return {name: (ours, theirs) for name, ours, theirs in pairs if ours != theirs}
