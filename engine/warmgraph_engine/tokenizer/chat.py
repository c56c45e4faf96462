"""Chat templates: from messages to the prompt's text, as Hugging Face's transformers renders them.

Templates come with the model and are Jinja programs, so they run in Jinja's sandbox with immutable
values. jinja2 costs 90 ms to import; that happens in `prepare`, beside the loading of weights.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from warmgraph_engine.tokenizer.errors import PromptError

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]


class ChatTemplateError(PromptError):
    """The template refuses or cannot render these messages: the request's fault."""


class ChatTemplate:
    """One compiled template with the model's special tokens as variables."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._source = source
        self._special_tokens = dict(special_tokens)

    def prepare(self) -> None:
        """Import Jinja and compile. Raises ChatTemplateError if the template has a flaw."""
        _ = self._template

    def render(
        self, messages: Sequence[Message], *, variables: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt's text, ready for the assistant's turn. `variables` are the template's own
        switches, such as `enable_thinking`."""
        values = {
            **self._special_tokens,
            **(variables or {}),
            "messages": messages,
            "add_generation_prompt": True,
        }
        values.setdefault("tools", None)
        values.setdefault("documents", None)
        try:
            return self._template.render(values)
        except Exception as error:  # whatever a template's program can raise
            raise ChatTemplateError(f"the chat template cannot render this: {error}") from error

    @cached_property
    def _template(self) -> Template:
        from jinja2 import TemplateSyntaxError  # noqa: PLC0415 (see the module)

        from warmgraph_engine.tokenizer.jinja import environment  # noqa: PLC0415

        try:
            return environment(
                {
                    "raise_exception": _raise_exception,
                    "strftime_now": _strftime_now,
                },
                {"tojson": _to_json},
            ).from_string(self._source)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"the model's chat template is not valid: {error.message} (line {error.lineno})"
            ) from error


def _raise_exception(message: str) -> None:
    raise ChatTemplateError(message)


def _strftime_now(format: str) -> str:  # noqa: A002 (the name that templates use)
    return datetime.datetime.now().strftime(format)  # noqa: DTZ005 (the clock people see)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which a model has never seen."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
