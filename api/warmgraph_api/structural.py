"""From JSON Schema, as msgspec derives it from the types, to what a CRD accepts.

Kubernetes wants a *structural* schema: no references, every value with one type, and defaults
on the objects themselves, so that an absent `engine` is filled like an empty one.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import msgspec

Schema = dict[str, Any]

REFERENCE = "#/$defs/"
INT_OR_STRING = {"integer", "string"}


class UnsupportedTypeError(TypeError):
    """A type in the resource has no structural schema."""


def structural_schema(kind: type[msgspec.Struct]) -> Schema:
    """The structural schema of a struct type, defaults included.

    Raises UnsupportedTypeError for what a CRD cannot express, such as a union of objects.
    """
    document = msgspec.json.schema(kind)
    return _structural(document, document.get("$defs", {}), kind.__name__)


def without_defaults(schema: Schema) -> Schema:
    """The same schema with no defaults, for what a program writes in full, such as status."""
    if "properties" in schema:
        children = {name: without_defaults(child) for name, child in schema["properties"].items()}
        schema = schema | {"properties": children}
    if "items" in schema:
        schema = schema | {"items": without_defaults(schema["items"])}
    return {key: value for key, value in schema.items() if key != "default"}


def _structural(schema: Schema, definitions: Schema, path: str) -> Schema:
    schema = _inlined(schema, definitions)
    if "anyOf" in schema:
        schema = _without_union(schema, path)
    if "enum" in schema:
        schema["type"] = "string"
    if "type" not in schema and "x-kubernetes-int-or-string" not in schema:
        raise UnsupportedTypeError(f"{path}: a CRD needs one type here, not {schema}")
    for child in ("items", "additionalProperties"):
        if isinstance(schema.get(child), dict) and schema[child]:
            schema[child] = _structural(schema[child], definitions, f"{path}[]")
    if "properties" in schema:
        schema["properties"] = {
            name: _structural(child, definitions, f"{path}.{name}")
            for name, child in schema["properties"].items()
        }
        if not schema.get("required"):
            schema.setdefault("default", _default_of_object(schema))
    if not schema.get("required", True):
        del schema["required"]
    return _ordered(schema)


def _inlined(schema: Schema, definitions: Schema) -> Schema:
    """The schema with its reference replaced; what stands beside the reference wins."""
    own = {key: value for key, value in schema.items() if key not in ("$ref", "$defs", "title")}
    if "$ref" not in schema:
        return copy.deepcopy(own)
    target = definitions[schema["$ref"].removeprefix(REFERENCE)]
    return _inlined(target, definitions) | copy.deepcopy(own)


def _without_union(schema: Schema, path: str) -> Schema:
    """A union as Kubernetes writes it: `nullable`, or an integer or string."""
    members = schema.pop("anyOf")
    kinds = [member.get("type") for member in members]
    if set(kinds) == INT_OR_STRING:
        return schema | {"x-kubernetes-int-or-string": True}
    raise UnsupportedTypeError(f"{path}: a CRD cannot express a union of {kinds}")


def _default_of_object(schema: Schema) -> Schema:
    """What an absent object is filled with: all the defaults in it.

    It is written out in full because the API server checks an object's rules against its
    default as it stands, before the defaults of its fields.
    """
    return {
        name: copy.deepcopy(child["default"])
        for name, child in schema["properties"].items()
        if "default" in child
    }


ORDER = ("description", "type", "nullable", "enum", "default")
"""What a reader looks for first."""

LAST = ("required", "properties", "items", "additionalProperties", "x-kubernetes-validations")


def _ordered(schema: Schema) -> Schema:
    if "description" in schema:
        schema["description"] = reflowed(schema["description"])
    rest = [key for key in schema if key not in ORDER and key not in LAST]
    return {key: schema[key] for key in (*ORDER, *rest, *LAST) if key in schema}


def reflowed(text: str) -> str:
    """A docstring as paragraphs of one line each."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
