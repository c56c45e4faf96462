"""The small JSON files beside a checkpoint's weights, read for what text handling needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec


class ModelFilesError(ValueError):
    """A file of the model's folder is missing or does not hold what it should."""


class SamplingDefaults(msgspec.Struct, frozen=True):
    """Sampling parameters that the model's authors recommend (generation_config.json). They hold
    for requests that don't say otherwise; a parameter named in neither has OpenAI's default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


class GenerationConfig(SamplingDefaults, frozen=True):
    eos_token_id: int | list[int] | None = None


class ModelConfig(msgspec.Struct, frozen=True):
    """Of config.json only what generation_config.json may leave out."""

    eos_token_id: int | list[int] | None = None


class SpecialToken(msgspec.Struct, frozen=True):
    content: str


class NamedTemplate(msgspec.Struct, frozen=True):
    name: str
    template: str


class TokenizerConfig(msgspec.Struct, frozen=True):
    chat_template: str | list[NamedTemplate] | None = None
    bos_token: str | SpecialToken | None = None
    eos_token: str | SpecialToken | None = None
    unk_token: str | SpecialToken | None = None
    pad_token: str | SpecialToken | None = None

    def special_tokens(self) -> dict[str, str]:
        """Those given, by name, as chat templates use them."""
        tokens = {
            name: getattr(self, name)
            for name in ("bos_token", "eos_token", "unk_token", "pad_token")
        }
        return {
            name: token if isinstance(token, str) else token.content
            for name, token in tokens.items()
            if token is not None
        }


T = TypeVar("T")


def read(path: Path, kind: type[T]) -> T:
    """An optional file: defaults of `kind` if it is not there."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b"{}"
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ModelFilesError(f"{path}: {error}") from error


def read_chat_template(folder: Path, config: TokenizerConfig) -> str | None:
    """The chat template in its two places; the file of its own is the newer form and wins."""
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    template: Any = config.chat_template
    if isinstance(template, list):
        by_name = {named.name: named.template for named in template}
        return by_name.get("default")
    return template if isinstance(template, str) else None


def token_ids(value: int | list[int] | None) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)
