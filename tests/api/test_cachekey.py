"""When two engines may exchange graphs."""

from __future__ import annotations

import msgspec
import pytest

from warmgraph_api.cachekey import CacheKey

KEY = CacheKey(
    format=1,
    model_config_digest="c0",
    model_weights_digest="w0",
    model_revision="v1",
    architecture="LlamaForCausalLM",
    device="cuda",
    device_name="NVIDIA H200",
    device_architecture="sm_90",
    driver="580.1",
    cuda="13.0",
    torch="2.11.0",
    engine_version="0.1.0",
    engine_sources_digest="e0",
    dtype="bfloat16",
    quantization="none",
    attention_backend="auto",
    tensor_parallel_size=1,
    tensor_parallel_rank=0,
    max_model_length=2048,
    max_batch_size=8,
    max_batch_tokens=256,
    kv_layout="16x1024:lbhd",
    speculative_tokens=0,
)


def other_value(value: str | int) -> str | int:
    return value + 1 if isinstance(value, int) else f"{value}, changed"


def test_the_digest_of_a_key_never_changes() -> None:
    """Another digest for the same key would throw away every cache in the field."""
    assert KEY.digest() == "33e3c11f71d8dc667f9db900747fbbf39fe8515ed96c51f6d74b6fb9e85c4fd8"


@pytest.mark.parametrize("name", CacheKey.__struct_fields__)
def test_every_field_keeps_graphs_apart(name: str) -> None:
    ours = getattr(KEY, name)
    theirs = other_value(ours)
    other = msgspec.structs.replace(KEY, **{name: theirs})
    assert other.digest() != KEY.digest()
    assert KEY.differences(other) == {name: (ours, theirs)}


def test_equal_keys_have_no_differences() -> None:
    assert KEY.differences(msgspec.structs.replace(KEY)) == {}


def test_a_stored_key_is_readable_and_comes_back_equal() -> None:
    stored = msgspec.json.format(msgspec.json.encode(KEY, order="sorted"))
    assert b'"dtype": "bfloat16"' in stored
    again = msgspec.json.decode(stored, type=CacheKey)
    assert again == KEY
    assert again.digest() == KEY.digest()


@pytest.mark.parametrize("change", ["added", "removed"])
def test_a_key_of_another_format_is_not_taken_for_ours(change: str) -> None:
    """A field that one side does not know may be the one that matters."""
    fields = msgspec.to_builtins(KEY)
    if change == "added":
        fields["node"] = "node-1"
    else:
        del fields["speculative_tokens"]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, CacheKey)
