"""config.json of a Hugging Face checkpoint, reduced to what the step functions need."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class ModelError(ValueError):
    """The checkpoint cannot be served; the message says which file and what about it."""


class Family(StrEnum):
    LLAMA = "llama"
    GPT2 = "gpt2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary position embedding."""

    theta: float
    factor: float = 1.0
    """Positions are divided by this (`linear`), or low frequencies are (`llama3`)."""
    llama3: tuple[float, float, int] | None = None
    """(low_freq_factor, high_freq_factor, original_max_position_embeddings), or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    architecture: str
    family: Family
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    """`silu`, `gelu_tanh` or `gelu`."""
    max_positions: int
    tied_embeddings: bool
    dtype: str
    """Of the checkpoint: float32, bfloat16 or float16."""
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    rope: Rope | None = None
    windows: tuple[int, ...] = ()
    """Sliding window of each layer in positions; 0 is full attention."""
    ranks: int = 1
    """Processes that share each layer; heads, kv_heads and intermediate are then those of one of
    them (models/shard.py)."""


def read_config(folder: Path) -> tuple[ModelConfig, bytes]:
    """The parsed config.json of a checkpoint and its raw bytes (for the cache key).

    Raises ModelError.
    """
    path = folder / "config.json"
    try:
        raw = path.read_bytes()
        values = json.loads(raw)
        if not isinstance(values, dict):
            raise ModelError(f"{path}: is not a JSON object")
        return parse_config(values), raw
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}: is this a model folder?") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: is not valid JSON: {error}") from error
    except KeyError as error:
        raise ModelError(f"{path}: {error.args[0]} is missing") from error


def parse_config(values: Mapping[str, Any]) -> ModelConfig:
    """Raises ModelError for an unsupported model, KeyError for a missing field."""
    architectures = values.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    parse = _ARCHITECTURES.get(str(name))
    if parse is None:
        supported = ", ".join(_ARCHITECTURES)
        raise ModelError(f"architecture {name} is not supported; these are: {supported}")
    if quantized := values.get("quantization_config"):
        method = quantized.get("quant_method") if isinstance(quantized, Mapping) else None
        raise ModelError(
            f"the checkpoint is quantized (quantization_config: {method or 'unknown'}), which is"
            " not supported; --quantization fp8 quantizes an unquantized one while it loads"
        )
    return parse(str(name), values)


def _llama(architecture: str, values: Mapping[str, Any]) -> ModelConfig:
    heads = values["num_attention_heads"]
    is_qwen2 = architecture == "Qwen2ForCausalLM"
    bias = bool(values.get("attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        family=Family.LLAMA,
        vocabulary=values["vocab_size"],
        hidden=values["hidden_size"],
        intermediate=values["intermediate_size"],
        layers=values["num_hidden_layers"],
        heads=heads,
        kv_heads=values.get("num_key_value_heads") or heads,
        head_dim=values.get("head_dim") or values["hidden_size"] // heads,
        norm_eps=values["rms_norm_eps"],
        activation=_activation(values.get("hidden_act", "silu")),
        max_positions=values["max_position_embeddings"],
        tied_embeddings=bool(values.get("tie_word_embeddings", False)),
        dtype=_dtype(values),
        qkv_bias=bias or is_qwen2,
        output_bias=bias and not is_qwen2,
        mlp_bias=bool(values.get("mlp_bias", False)),
        qk_norm=architecture == "Qwen3ForCausalLM",
        rope=_rope(values),
        windows=_windows(architecture, values),
    )


def _gpt2(architecture: str, values: Mapping[str, Any]) -> ModelConfig:
    for name in ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        if values.get(name):
            raise ModelError(f"{name} is not supported")
    hidden, layers = values["n_embd"], values["n_layer"]
    return ModelConfig(
        architecture=architecture,
        family=Family.GPT2,
        vocabulary=values["vocab_size"],
        hidden=hidden,
        intermediate=values.get("n_inner") or 4 * hidden,
        layers=layers,
        heads=values["n_head"],
        kv_heads=values["n_head"],
        head_dim=hidden // values["n_head"],
        norm_eps=values["layer_norm_epsilon"],
        activation=_activation(values.get("activation_function", "gelu_new")),
        max_positions=values["n_positions"],
        tied_embeddings=bool(values.get("tie_word_embeddings", True)),
        dtype=_dtype(values),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        windows=(0,) * layers,
    )


_ARCHITECTURES: dict[str, Callable[[str, Mapping[str, Any]], ModelConfig]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _llama,
    "Qwen2ForCausalLM": _llama,
    "Qwen3ForCausalLM": _llama,
    "GPT2LMHeadModel": _gpt2,
}


def _activation(name: str) -> str:
    known = {
        "silu": "silu",
        "swish": "silu",
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
    }
    if name not in known:
        raise ModelError(f"activation {name!r} is not supported")
    return known[name]


def _dtype(values: Mapping[str, Any]) -> str:
    name = str(values.get("dtype") or values.get("torch_dtype") or "float32")
    if name not in ("float32", "bfloat16", "float16"):
        raise ModelError(f"weights of type {name!r} are not supported")
    return name


def _rope(values: Mapping[str, Any]) -> Rope:
    """Both spellings: `rope_parameters` of newer checkpoints, `rope_theta` and `rope_scaling` of
    older ones."""
    settings = dict(values.get("rope_scaling") or {})
    settings.update(values.get("rope_parameters") or {})
    theta = float(settings.get("rope_theta") or values.get("rope_theta") or 10000.0)
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if kind == "default":
        return Rope(theta=theta)
    if kind == "linear":
        return Rope(theta=theta, factor=float(settings["factor"]))
    if kind == "llama3":
        names = ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        low, high, original = (settings[name] for name in names)
        return Rope(
            theta=theta,
            factor=float(settings["factor"]),
            llama3=(float(low), float(high), int(original)),
        )
    raise ModelError(f"rope scaling {kind!r} is not supported")


def _windows(architecture: str, values: Mapping[str, Any]) -> tuple[int, ...]:
    layers: int = values["num_hidden_layers"]
    window: int = values.get("sliding_window") or 0
    if architecture == "MistralForCausalLM":
        return (window,) * layers
    if not architecture.startswith("Qwen") or not values.get("use_sliding_window"):
        return (0,) * layers
    first = values.get("max_window_layers", layers)
    kinds = values.get("layer_types") or [
        "sliding_attention" if layer >= first else "full_attention" for layer in range(layers)
    ]
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
