"""The graph cache key: everything that a stored graph depends on, field by field.

Two engines with equal keys may exchange graphs; with any field unequal they must not. Nothing
of the pod, the node, the device's serial number, the port or the time is in it. A bucket is not a
field either: an entry holds the graphs of many, each under its bucket's name.

keyreference.py makes docs/cache-key.md from what is said here.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta


def _because(what: str, why: str) -> Meta:
    """What a field holds, and what goes wrong with a graph that was made for another value."""
    return Meta(description=what, extra={"why": why})


class CacheKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All fields are plain text or whole numbers, so that `key.json` is readable and exact."""

    format: Annotated[
        int,
        _because("Of the stored entry.", "Its files would be read as something else."),
    ]
    model_config_digest: Annotated[
        str,
        _because(
            "SHA-256 of config.json.",
            "Layers, heads, activation and the scaling of positions are built into a graph.",
        ),
    ]
    model_weights_digest: Annotated[
        str,
        _because(
            "SHA-256 over the names, shapes, types and sampled content of the weights.",
            "A graph refers to weights by name, and its kernels were chosen for their shapes. The "
            "content is in it so that no model ever runs on what was recorded with another.",
        ),
    ]
    model_revision: Annotated[
        str,
        _because(
            "As declared in `spec.model.revision`; empty when none is.",
            "Content is only sampled: who edits a few numbers of a model can say so here.",
        ),
    ]
    architecture: Annotated[
        str,
        _because(
            "Model class, such as LlamaForCausalLM.", "It decides which operations a step has."
        ),
    ]
    device: Annotated[
        str,
        _because("`cpu` or `cuda`.", "Each has a format of its own for graphs."),
    ]
    device_name: Annotated[
        str,
        _because(
            "GPU model, or the CPU's instruction set.",
            "Kernels are chosen for a GPU's size and speed, which its architecture does not tell; "
            "and a CPU's instruction set changes its sums.",
        ),
    ]
    device_architecture: Annotated[
        str,
        _because(
            "Compute capability such as sm_90, or the machine type such as x86_64.",
            "Machine code of one does not run on another.",
        ),
    ]
    driver: Annotated[
        str,
        _because(
            "Version of the GPU's kernel module; `none` on a CPU.",
            "It loads the code and makes the graph, and what it accepts changes.",
        ),
    ]
    cuda: Annotated[
        str,
        _because(
            "Version of CUDA that the driver offers; `none` on a CPU.",
            "The meaning of graph nodes and launch attributes belongs to it.",
        ),
    ]
    torch: Annotated[
        str,
        _because(
            "Version of torch, or of the kernels' compiler where torch has no part.",
            "Operations keep their name and change their sums; a compiler changes its code.",
        ),
    ]
    engine_version: Annotated[
        str,
        _because("Of warmgraph.", "What a release changes need not show in a source file."),
    ]
    engine_sources_digest: Annotated[
        str,
        _because(
            "SHA-256 of the engine's sources that decide what a graph is: models, kernels, "
            "memory layout, static buffers.",
            "A kernel that was edited must not run in its old form; and the engine would fill "
            "buffers that an old graph reads another way.",
        ),
    ]
    dtype: Annotated[
        str,
        _because("Of weights, activations and KV cache.", "It decides the kernels and the sizes."),
    ]
    quantization: Annotated[
        str,
        _because("Of the weights.", "Quantized weights have other kernels and other shapes."),
    ]
    attention_backend: Annotated[
        str,
        _because("Which attention kernels.", "Each reads block tables and lengths in its own way."),
    ]
    tensor_parallel_size: Annotated[
        int,
        _because("GPUs that share the model.", "Each holds a part, so shapes differ."),
    ]
    tensor_parallel_rank: Annotated[
        int,
        _because("Which part this engine holds.", "Ranks hold different parts of each layer."),
    ]
    max_model_length: Annotated[
        int,
        _because(
            "Longest sequence, in tokens.",
            "A graph reads block tables of this width; with another it would read the next "
            "sequence's blocks.",
        ),
    ]
    max_batch_size: Annotated[
        int,
        _because("Most sequences in a step.", "It is the height of the same tables."),
    ]
    max_batch_tokens: Annotated[
        int,
        _because("Most prompt tokens in a step.", "It is the length of the static buffers."),
    ]
    kv_layout: Annotated[
        str,
        _because(
            "Blocks, positions in a block, heads and dimensions of the KV cache.",
            "A graph computes addresses in the cache from them.",
        ),
    ]
    speculative_tokens: Annotated[
        int,
        _because(
            "Draft tokens per step; 0 without speculative decoding.",
            "A verify bucket has 1 more tokens for each of its sequences.",
        ),
    ]

    def digest(self) -> str:
        """SHA-256 in hex of the canonical JSON form; names the entry's folder."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    def differences(self, other: CacheKey) -> dict[str, tuple[str | int, str | int]]:
        """Fields with unequal values, as (ours, other's), in the order of declaration."""
        fields = self.__struct_fields__
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in fields)
        return {name: (ours, theirs) for name, ours, theirs in pairs if ours != theirs}
