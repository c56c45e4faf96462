"""The field reference, docs/api-reference.md, from the schema of the CRD."""

from __future__ import annotations

import json
from collections.abc import Iterator

from warmgraph_api import labels
from warmgraph_api.structural import Schema

INTRODUCTION = f"""\
<!-- Generated from api/warmgraph_api by `python -m warmgraph_api.crd`; edit the types instead. -->
# API reference: {labels.KIND}

`{labels.API_VERSION}`, short name `{labels.SHORT_NAME}`. `kubectl explain {labels.SHORT_NAME}.spec`
says the same. Every default is filled in by the API server, so `kubectl get -o yaml` shows what is
in force. A number of 0 means zero, never "not set".
"""


def reference(schema: Schema) -> str:
    """Markdown with one table for each object in `spec` and `status`."""
    properties = schema["properties"]
    sections = [
        INTRODUCTION,
        *_sections("spec", properties["spec"]),
        *_sections("status", properties["status"]),
    ]
    return "\n".join(sections)


def _sections(path: str, schema: Schema) -> Iterator[str]:
    """The section of one object, then those of the objects inside it."""
    lines = [f"## {path}", "", schema["description"], ""]
    lines += ["| field | type | default | description |", "| --- | --- | --- | --- |"]
    inside: list[tuple[str, Schema]] = []
    for name, field in schema["properties"].items():
        section = f"{path}.{name}"
        if _is_object(field):
            inside.append((section, field))
        elif _is_object(field.get("items", {})):
            section += "[]"
            inside.append((section, field["items"]))
        cells = [
            f"`{name}`",
            _type(field, section),
            _default(field, required=name in schema.get("required", [])),
            _description(field),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if refusals := list(_refusals(schema)):
        lines += ["", "The API server says:", "", *refusals]
    yield "\n".join(lines) + "\n"
    for section, child in inside:
        yield from _sections(section, child)


def _is_object(schema: Schema) -> bool:
    """Whether the schema has a section of its own: an object whose fields are ours."""
    return "properties" in schema and "x-kubernetes-preserve-unknown-fields" not in schema


def _refusals(schema: Schema) -> Iterator[str]:
    """What the API server says no to, for the object and for each field without a section."""
    for rule in schema.get("x-kubernetes-validations", []):
        yield f"- {rule['message']}"
    for name, field in schema["properties"].items():
        if not _is_object(field):
            for rule in field.get("x-kubernetes-validations", []):
                yield f"- `{name}`: {rule['message']}"


def _type(field: Schema, section: str) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "items" in field:
        return f"list of {_type(field['items'], section)}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'], section)}"
    if _is_object(field):
        return f"[object](#{section.lower().translate(NOT_IN_ANCHORS)})"
    return _scalar_type(field)


def _scalar_type(field: Schema) -> str:
    if "x-kubernetes-int-or-string" in field:
        return "quantity"
    if "x-kubernetes-preserve-unknown-fields" in field:
        return str(field["description"])
    if "maximum" in field:
        return f"{field['type']}, {field['minimum']} to {field['maximum']}"
    return str(field["type"])


# How Markdown renderers make a link target of a heading.
NOT_IN_ANCHORS = str.maketrans("", "", ".[]")


def _default(field: Schema, *, required: bool) -> str:
    if required:
        return "required"
    if "default" not in field or _is_object(field):
        return ""
    return f"`{json.dumps(field['default'])}`"


def _description(field: Schema) -> str:
    return str(field.get("description", "")).replace("\n\n", " ")
