"""Everything of a model that concerns text, loaded from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

from tokenizers import Tokenizer

from warmgraph_engine.tokenizer import tokenbytes
from warmgraph_engine.tokenizer.chat import ChatTemplate, ChatTemplateError, Message
from warmgraph_engine.tokenizer.detokenizer import Detokenizer
from warmgraph_engine.tokenizer.errors import PromptError
from warmgraph_engine.tokenizer.files import (
    GenerationConfig,
    ModelConfig,
    ModelFilesError,
    SamplingDefaults,
    TokenizerConfig,
    read,
    read_chat_template,
    token_ids,
)

CACHED_TOKENS = 65_536
"""Tokens whose bytes, and whose text, are kept, a whole usual vocabulary: about 10 MB each if all
of it is visited."""


class TextModel:
    """Thread-safe."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocabulary: int,
        eos_token_ids: frozenset[int] = frozenset(),
        defaults: SamplingDefaults | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.eos_token_ids = eos_token_ids
        self.defaults = defaults or SamplingDefaults()
        self._chat_template = chat_template
        # The decoder of tokenizer.json tells the form; its own description is the only public way.
        byte_level = "ByteLevel" in repr(tokenizer.decoder)
        to_bytes = tokenbytes.byte_level if byte_level else tokenbytes.sentencepiece
        special = {
            index: added.content
            for index, added in tokenizer.get_added_tokens_decoder().items()
            if added.special
        }

        @lru_cache(maxsize=CACHED_TOKENS)
        def token_bytes(token_id: int) -> bytes:
            if token_id in special:
                return special[token_id].encode()
            return to_bytes(tokenizer.id_to_token(token_id) or "")

        self.token_bytes = token_bytes

        @lru_cache(maxsize=CACHED_TOKENS)
        def token_text(token_id: int, skip_special_tokens: bool) -> str:
            text: str = tokenizer.decode([token_id], skip_special_tokens=skip_special_tokens)
            return text

        self._token_text = token_text

    @classmethod
    def load(cls, folder: Path, *, vocabulary: int) -> TextModel:
        """Read tokenizer.json and the files beside it. Raises ModelFilesError."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelFilesError(f"{path} is missing: warmgraph needs the tokenizer in this form")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ModelFilesError(f"{path}: {error}") from error
        config = read(folder / "tokenizer_config.json", TokenizerConfig)
        generation = read(folder / "generation_config.json", GenerationConfig)
        special = config.special_tokens()
        eos = token_ids(generation.eos_token_id) or token_ids(
            read(folder / "config.json", ModelConfig).eos_token_id
        )
        named = tokenizer.token_to_id(special["eos_token"]) if "eos_token" in special else None
        if named is not None:
            eos |= {named}
        template = read_chat_template(folder, config)
        return cls(
            tokenizer,
            vocabulary=vocabulary,
            eos_token_ids=frozenset(token for token in eos if 0 <= token < vocabulary),
            defaults=generation,
            chat_template=ChatTemplate(template, special) if template is not None else None,
        )

    def prepare(self) -> None:
        """Do now what the first chat request would have to wait for."""
        if self._chat_template is not None:
            self._chat_template.prepare()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Raises PromptError if the model does not know a token."""
        # The batch form, unlike `encode`, lets other threads run meanwhile; the fast one leaves out
        # the offsets of characters, which nobody here reads.
        [encoding] = self._tokenizer.encode_batch_fast(
            [text], add_special_tokens=add_special_tokens
        )
        ids = list(encoding.ids)
        if ids and max(ids) >= self.vocabulary:
            # Tokens may be added to a tokenizer without giving the model an embedding for them.
            raise PromptError(
                f"the prompt holds token {max(ids)}, which this model's vocabulary of "
                f"{self.vocabulary} tokens does not have"
            )
        return ids

    def encode_chat(
        self, messages: Sequence[Message], *, variables: dict[str, object] | None = None
    ) -> list[int]:
        """Raises PromptError. The template writes the special tokens itself."""
        if self._chat_template is None:
            raise ChatTemplateError("this model has no chat template; use /v1/completions")
        text = self._chat_template.render(messages, variables=variables)
        return self.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        if len(ids) == 1:  # asked by the detokenizer for every token
            return self._token_text(ids[0], skip_special_tokens)
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def detokenizer(self, prompt: Sequence[int], *, skip_special_tokens: bool) -> Detokenizer:
        return Detokenizer(partial(self.decode, skip_special_tokens=skip_special_tokens), prompt)
