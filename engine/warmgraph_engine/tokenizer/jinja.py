"""The Jinja environment of chat templates. Imported late: see chat.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; when a
    prompt is rendered, its content simply stands there."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment(
    functions: Mapping[str, Callable[..., Any]], filters: Mapping[str, Callable[..., Any]]
) -> ImmutableSandboxedEnvironment:
    created = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    created.globals.update(functions)
    created.filters.update(filters)
    return created
