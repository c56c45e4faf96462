"""Small tokenizers of the two usual forms, and a model's folder that holds one."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from warmgraph_engine.tokenizer.tokenbytes import byte_level_alphabet

VOCABULARY = 300
"""Of the byte-level tokenizer: 256 bytes, a few merges, three special tokens, some unused ids."""

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_level_tokenizer() -> Tokenizer:
    """Like GPT-2's: every byte is a token, "he" "ll" " w" "hell" are merged."""
    alphabet = byte_level_alphabet()
    vocabulary = dict(alphabet.items())
    merges = [("h", "e"), ("l", "l"), ("Ġ", "w"), ("he", "ll")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True) for name in ("<|im_start|>", "<|im_end|>", "<|end|>")]
    )
    return tokenizer


def sentencepiece_tokenizer() -> Tokenizer:
    """Like Llama 2's: a leading space is part of a word, and bytes are tokens of their own."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"helowrd", "he", "ll", "hell", "hello", "▁hello", "wo", "rl", "worl", "world"]
    pieces += ["▁world"]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "hello")]
    merges += [("w", "o"), ("r", "l"), ("wo", "rl"), ("worl", "d"), ("▁", "world")]
    tokenizer = Tokenizer(
        models.BPE(
            {piece: index for index, piece in enumerate(pieces)},
            merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def write_model_folder(folder: Path, **files: dict) -> Path:
    """A folder with tokenizer.json and JSON files by name (without their ending)."""
    tokenizer = byte_level_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    defaults = {
        "tokenizer_config": {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"},
        "generation_config": {"eos_token_id": [tokenizer.token_to_id("<|end|>")]},
    }
    for name, content in (defaults | files).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
