"""Kubernetes quantities, such as 512Mi or 250m, as exact numbers."""

from __future__ import annotations

from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity


def quantity(text: str | int) -> Decimal:
    """Raises ValueError where the text is none."""
    value: Decimal = parse_quantity(text)  # type: ignore[no-untyped-call]
    return value
