"""Where things live: the repository, and what is kept between builds."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "images" / "requirements"


def cache() -> Path:
    """Layers, and what a build container sees of the host; `WARMGRAPH_CACHE` moves it."""
    xdg = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("WARMGRAPH_CACHE") or Path(xdg, "warmgraph")).absolute() / "images"
