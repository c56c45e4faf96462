from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.engine.texts import VOCABULARY, write_model_folder
from warmgraph_engine.tokenizer.chat import ChatTemplateError
from warmgraph_engine.tokenizer.errors import PromptError
from warmgraph_engine.tokenizer.files import ModelFilesError
from warmgraph_engine.tokenizer.text import TextModel

MESSAGES = [{"role": "user", "content": "hello"}]


def load(folder, **files):
    return TextModel.load(write_model_folder(folder, **files), vocabulary=VOCABULARY)


def test_all_ends_of_sequence_that_the_files_name_count(tmp_path):
    text = load(tmp_path)
    names = {text.decode([token], skip_special_tokens=False) for token in text.eos_token_ids}
    assert names == {"<|end|>", "<|im_end|>"}


def test_config_json_names_the_end_if_generation_config_does_not(tmp_path):
    text = load(tmp_path, generation_config={}, tokenizer_config={}, config={"eos_token_id": 5})
    assert text.eos_token_ids == {5}


def test_an_end_outside_the_vocabulary_is_passed_over(tmp_path):
    text = load(tmp_path, generation_config={"eos_token_id": [5, 10_000, -1]}, tokenizer_config={})
    assert text.eos_token_ids == {5}


def test_sampling_defaults_are_the_authors(tmp_path):
    text = load(tmp_path, generation_config={"temperature": 0.6, "top_k": 20, "do_sample": True})
    assert text.defaults.temperature == 0.6
    assert text.defaults.top_k == 20
    assert text.defaults.top_p is None


@pytest.mark.parametrize("form", ["text", "list", "file"])
def test_the_chat_template_is_found_where_models_keep_it(tmp_path, form):
    template = "T:{{ messages[0].content }}"
    if form == "text":
        text = load(tmp_path, tokenizer_config={"chat_template": template})
    elif form == "list":
        named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": template}]
        text = load(tmp_path, tokenizer_config={"chat_template": named})
    else:
        (tmp_path / "chat_template.jinja").write_text(template)
        text = load(tmp_path)
    assert text.decode(text.encode_chat(MESSAGES)) == "T:hello"


def test_a_model_without_template_says_so(tmp_path):
    with pytest.raises(ChatTemplateError, match="no chat template; use /v1/completions"):
        load(tmp_path, tokenizer_config={}).encode_chat(MESSAGES)


def test_a_token_that_the_model_does_not_have_is_the_prompts_fault(tmp_path):
    write_model_folder(tmp_path)
    text = TextModel.load(tmp_path, vocabulary=260)
    with pytest.raises(PromptError, match="vocabulary of 260 tokens does not have"):
        text.encode("<|im_end|>")


def test_special_tokens_may_be_objects(tmp_path):
    token = {"content": "<|im_end|>", "lstrip": False, "special": True}
    text = load(tmp_path, tokenizer_config={"eos_token": token, "chat_template": "{{ eos_token }}"})
    assert text.encode_chat(MESSAGES) == [text._tokenizer.token_to_id("<|im_end|>")]


def test_truncation_and_padding_of_the_file_are_not_applied(tmp_path):
    write_model_folder(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
        "direction": "Right",
    }
    path.write_text(json.dumps(content))
    assert len(TextModel.load(tmp_path, vocabulary=VOCABULARY).encode("abcdef")) == 6


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(ModelFilesError, match=r"tokenizer\.json is missing"):
        TextModel.load(tmp_path, vocabulary=VOCABULARY)
    write_model_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"temperature": "hot"}')
    with pytest.raises(ModelFilesError, match=r"generation_config\.json.*temperature"):
        TextModel.load(tmp_path, vocabulary=VOCABULARY)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFilesError, match=r"tokenizer\.json"):
        TextModel.load(tmp_path, vocabulary=VOCABULARY)


def test_every_token_has_its_bytes(tmp_path):
    text = load(tmp_path)
    for content in ["hello wörld 😀", "\n\t"]:
        tokens = text.encode(content)
        assert b"".join(map(text.token_bytes, tokens)) == content.encode()
    end = text._tokenizer.token_to_id("<|im_end|>")
    assert text.token_bytes(end) == b"<|im_end|>"
    assert text.token_bytes(299) == b""


def test_the_deciding_side_imports_no_torch_and_no_jinja():
    """Both are slow to import and not needed before a model is loaded."""
    code = (
        "import sys, warmgraph_engine.server.app, warmgraph_engine.loop, "
        "warmgraph_engine.sampling.cpu, warmgraph_engine.tokenizer.text; "
        "print([m for m in ('torch', 'jinja2', 'transformers', 'pydantic') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
