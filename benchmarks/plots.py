"""Bar charts as SVG, the same bytes for the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

COLOURS = ("#4477aa", "#ee6677", "#228833")
"""Told apart by colour-blind readers too (Paul Tol's bright scheme)."""

WIDTH, HEIGHT = 680, 300
LEFT, TOP, BOTTOM = 20, 64, 30
PLOT_HEIGHT = HEIGHT - TOP - BOTTOM


def bars(
    title: str, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], *, spec: str
) -> str:
    """Groups of bars beside each other; each series has a value for every group, and each bar its
    value above it, formatted by `spec`."""
    most = max(value for _, values in series for value in values) or 1.0
    slot = (WIDTH - 2 * LEFT) / len(groups)
    width = min(48.0, 0.8 * slot / len(series))
    parts = [_text(LEFT, 24, title, "start", 15), *_legend([name for name, _ in series])]
    for place, group in enumerate(groups):
        middle = LEFT + (place + 0.5) * slot
        parts.append(_text(middle, HEIGHT - 10, group, "middle", 12))
        for number, (_, values) in enumerate(series):
            height = PLOT_HEIGHT * values[place] / most
            x = middle + (number - len(series) / 2) * width
            y = TOP + PLOT_HEIGHT - height
            parts.append(_rectangle(x + 1, y, width - 2, height, COLOURS[number]))
            parts.append(_text(x + width / 2, y - 4, f"{values[place]:{spec}}", "middle", 10))
    ground = TOP + PLOT_HEIGHT
    parts.append(_rectangle(LEFT, ground, WIDTH - 2 * LEFT, 1, "#666666"))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">'
    )
    paper = _rectangle(0, 0, WIDTH, HEIGHT, "#ffffff")  # readable on a dark page, too
    return "\n".join([head, paper, *parts, "</svg>\n"])


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    x = float(LEFT)
    for number, name in enumerate(names):
        parts.append(_rectangle(x, 34, 10, 10, COLOURS[number]))
        parts.append(_text(x + 15, 43, name, "start", 12))
        x += 35 + 7 * len(name)
    return parts


def _rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
    )


def _text(x: float, y: float, content: str, anchor: str, size: int) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' fill="#222222">{escape(content)}</text>'
    )
