"""What every type of the resource is made of: the base class, rules and shared shapes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class Resource(msgspec.Struct, rename="camel", frozen=True):
    """Base of every type in the resource: camelCase on the wire, immutable in the program.

    Unknown fields are ignored, so that an older process reads the objects of a newer one.
    """


def rule(expression: str, message: str, *, at: str = "") -> dict[str, str]:
    """A CEL rule that the API server checks, with what it tells the user on a violation.

    `at` is the field that the error points to, from the place of the rule, such as `.lazy`.
    """
    checked = {"rule": expression, "message": message}
    return checked | {"fieldPath": at} if at else checked


def rules(*checked: dict[str, str]) -> dict[str, Any]:
    """Schema extension that carries rules."""
    return {"x-kubernetes-validations": list(checked)}


def keyed_by(*keys: str) -> dict[str, Any]:
    """Schema extension for a list whose items are told apart by `keys`: the API server refuses
    duplicates, and server-side apply merges item by item."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def embedded(
    kind: str, *, required: dict[str, Any] | None = None, optional: dict[str, Any] | None = None
) -> Meta:
    """An object of a core Kubernetes type, which the API server checks when it becomes a pod.

    `required` and `optional` are fields, with their schemas, that are checked here already.
    """
    schema: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
    if required or optional:
        schema["properties"] = {**(required or {}), **(optional or {})}
        schema["required"] = list(required or {})
    return Meta(description=kind, extra_json_schema=schema)


NO_WHITE_SPACE = "!self.matches('[[:space:]]')"

QUANTITY_LENGTH = 32
"""Longer than any quantity people write; rules on unbounded text cost too much for the CRD."""

MemoryQuantity = Annotated[
    str,
    Meta(
        max_length=QUANTITY_LENGTH,
        extra_json_schema=rules(
            rule(
                "self.matches('^[0-9]+([.][0-9]+)?([KMGT]i|[kMGT])?$')"
                " && quantity(self).isGreaterThan(quantity('0'))",
                "must be a memory size above 0, such as 512Mi or 40Gi",
            )
        ),
    ),
]

# Written as int | str, so that both `cpu: 2` and `cpu: 500m` are accepted, as in a pod.
AnyQuantity = Annotated[
    int | str,
    Meta(
        extra_json_schema=rules(
            rule(
                "type(self) == int || isQuantity(self)",
                "must be a quantity, such as 2, 500m or 4Gi",
            )
        ),
    ),
]

DNS_NAME_LENGTH = 253
"""Longest name of a Kubernetes object (RFC 1123 subdomain)."""

OptionalObjectName = Annotated[
    str,
    Meta(
        max_length=DNS_NAME_LENGTH,
        extra_json_schema=rules(
            rule(
                "self == '' || self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
                "must be the name of an object: lower case letters, digits, '-' and '.'",
            )
        ),
    ),
]
