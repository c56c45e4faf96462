"""GGUF's `llama` architecture in Hugging Face terms: config.json, tensor names, rotary layout."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgraph_engine.convert.gguf_file import ConversionError, GGUFFile

_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def config(file: GGUFFile) -> dict[str, Any]:
    """The content of config.json."""
    heads = int(file.require("llama.attention.head_count"))
    hidden = int(file.require("llama.embedding_length"))
    if file.get("llama.rope.scaling.type", "none") != "none" or "rope_freqs.weight" in file.names():
        raise ConversionError(
            f"{file.path}: scaled rotary embeddings cannot be converted from GGUF"
        )
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
        "hidden_size": hidden,
        "intermediate_size": int(file.require("llama.feed_forward_length")),
        "num_hidden_layers": int(file.require("llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(file.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(file.get("llama.attention.key_length", hidden // heads)),
        "hidden_act": "silu",
        "max_position_embeddings": int(file.require("llama.context_length")),
        "rms_norm_eps": file.number("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": file.number("llama.rope.freq_base"),
        "attention_bias": "blk.0.attn_q.bias" in file.names(),
        "mlp_bias": "blk.0.ffn_up.bias" in file.names(),
        "tie_word_embeddings": "output.weight" not in file.names(),
        "vocab_size": len(file.require("tokenizer.ggml.tokens")),
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.require("tokenizer.ggml.eos_token_id"),
        "pad_token_id": file.get("tokenizer.ggml.padding_token_id"),
    }


def tensor(
    name: str, values: NDArray[np.float32], config: dict[str, Any]
) -> tuple[str, NDArray[np.float32]]:
    """The Hugging Face name and layout of one GGUF tensor.

    Raises ConversionError for a tensor that a Llama model does not have.
    """
    if name in _OUTER_NAMES:
        return _OUTER_NAMES[name], values
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _LAYER_NAMES:
        raise ConversionError(f"tensor {name} does not belong to a Llama model")
    if match[2] == "attn_q":
        values = unpermute(values, config["num_attention_heads"])
    elif match[2] == "attn_k":
        values = unpermute(values, config["num_key_value_heads"])
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}", values


def unpermute(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a q or k projection from GGUF's order to Hugging Face's.

    GGUF keeps the two numbers of a rotated pair next to each other; Hugging Face keeps all first
    numbers of a head in its first half and all second ones in its second half.
    """
    rows = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(values.shape))
