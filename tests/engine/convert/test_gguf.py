"""A GGUF file becomes the checkpoint that it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from tests.engine.checkpoints import tensors
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.cli import main
from warmgraph_engine.convert.convert import convert_gguf
from warmgraph_engine.convert.gguf_file import ConversionError
from warmgraph_engine.convert.llama import unpermute
from warmgraph_engine.tokenizer.tokenbytes import byte_level_alphabet

TOKENS = [*byte_level_alphabet(), "he", "<|end|>"]
CONTROL, NORMAL = 3, 1


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter does it: the two numbers of a rotated pair become neighbours."""
    rows = []
    for head in np.split(weight, heads):
        half = len(head) // 2
        rows += [row for pair in zip(head[:half], head[half:], strict=True) for row in pair]
    return np.stack(rows)


def write_gguf(path: Path, *, architecture: str = "llama", pre: str = "smollm") -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([NORMAL] * (len(TOKENS) - 1) + [CONTROL])
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(len(TOKENS) - 1)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "model.layers.": "blk.",
    }
    for name, weight in tensors().items():
        stored = weight
        if "q_proj" in name:
            stored = permuted(weight, 4)
        if "k_proj" in name:
            stored = permuted(weight, 2)
        target = name
        for theirs, gguf in names.items():
            target = target.replace(theirs, gguf)
        writer.add_tensor(target, np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_weight_comes_back_under_its_name(tmp_path: Path) -> None:
    convert_gguf(write_gguf(tmp_path / "m.gguf"), tmp_path / "hf")
    converted = load_file(tmp_path / "hf" / "model.safetensors")
    assert converted.keys() == tensors().keys()
    for name, weight in tensors().items():
        np.testing.assert_array_equal(converted[name], weight.astype(np.float16), err_msg=name)


def test_the_folder_can_be_served_by_another_user(tmp_path: Path) -> None:
    convert_gguf(write_gguf(tmp_path / "m.gguf"), tmp_path / "hf")
    config = Checkpoint(tmp_path / "hf").config
    assert (config.architecture, config.heads, config.kv_heads, config.layers) == (
        "LlamaForCausalLM",
        4,
        2,
        2,
    )
    assert config.norm_eps == 1e-5
    assert config.tied_embeddings
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (tmp_path / "hf").iterdir())


def test_text_is_cut_as_the_models_own_tokenizer_cuts_it(tmp_path: Path) -> None:
    convert_gguf(write_gguf(tmp_path / "m.gguf"), tmp_path / "hf")
    tokenizer = Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    assert tokenizer.encode("he 42<|end|>").tokens == ["he", "Ġ", "4", "2", "<|end|>"]
    assert tokenizer.decode(tokenizer.encode("héhe ☃").ids) == "héhe ☃"
    assert tokenizer.token_to_id("<|end|>") == len(TOKENS) - 1
    config = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert config["eos_token"] == "<|end|>"
    assert config["chat_template"] == "{{ messages[0]['content'] }}"
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert generation == {"eos_token_id": len(TOKENS) - 1}


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_unpermuting_undoes_the_permutation(heads: int) -> None:
    weight = np.arange(16 * 3, dtype=np.float32).reshape(16, 3)
    np.testing.assert_array_equal(unpermute(permuted(weight, heads), heads), weight)


def test_what_cannot_be_converted_is_said_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("not a model")
    cases = [
        (tmp_path / "missing.gguf", "no such file"),
        (tmp_path / "text.gguf", "not a readable GGUF file"),
        (write_gguf(tmp_path / "other.gguf", architecture="mamba"), "architecture 'mamba'"),
        (write_gguf(tmp_path / "pre.gguf", pre="klingon"), "pre-tokenizer 'klingon'"),
    ]
    for source, message in cases:
        with pytest.raises(ConversionError, match=message):
            convert_gguf(source, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_the_command_never_overwrites_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_gguf(tmp_path / "m.gguf")
    assert main(["convert-gguf", str(source), str(tmp_path / "hf")]) == 0
    assert main(["convert-gguf", str(source), str(tmp_path / "hf")]) == 1
    assert "already exists" in capsys.readouterr().err
