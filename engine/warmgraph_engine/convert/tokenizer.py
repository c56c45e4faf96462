"""GGUF's tokenizer metadata as tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from warmgraph_engine.convert.gguf_file import ConversionError, GGUFFile


class TokenType(IntEnum):
    """Of `tokenizer.ggml.token_type`; the other types do not occur in byte-level vocabularies."""

    CONTROL = 3
    USER_DEFINED = 4


def _byte_level(use_regex: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """How text is cut before merging, by GGUF's `tokenizer.ggml.pre`."""
    if name in ("gpt-2", "default"):
        return _byte_level(use_regex=True)
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, _byte_level(use_regex=True)])
    if name == "llama-bpe":
        words = Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        split = pre_tokenizers.Split(words, behavior="isolated")
        return pre_tokenizers.Sequence([split, _byte_level(use_regex=False)])
    raise ConversionError(
        f"pre-tokenizer {name!r} is not supported; supported are smollm, gpt-2 and llama-bpe"
    )


def tokenizer(file: GGUFFile) -> Tokenizer:
    """A byte-level BPE tokenizer equal to the one in the metadata."""
    kind = file.require("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ConversionError(f"{file.path}: tokenizer {kind!r} is not byte-level BPE (gpt2)")
    tokens: list[str] = file.require("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in file.require("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    result = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    result.pre_tokenizer = pre_tokenizer(file.get("tokenizer.ggml.pre", "default"))
    result.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, file.require("tokenizer.ggml.token_type"), strict=True):
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED):
            special = kind == TokenType.CONTROL
            added = AddedToken(token, special=special, normalized=False)
            (result.add_special_tokens if special else result.add_tokens)([added])
    if result.get_vocab_size() != len(tokens):
        raise ConversionError(f"{file.path}: tokens repeat in the vocabulary")
    return result


def tokenizer_config(file: GGUFFile) -> dict[str, Any]:
    """The content of tokenizer_config.json, chat template included."""
    tokens: list[str] = file.require("tokenizer.ggml.tokens")
    result: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(file.get("tokenizer.ggml.add_bos_token", False)),
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(file.require("llama.context_length")),
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = file.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            result[f"{name}_token"] = tokens[index]
    template = file.get("tokenizer.chat_template")
    if template:
        result["chat_template"] = template
    return result
